#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# Run tests of xfstests: xfstests_cases.sh FOLDER FILESYSTEM LIMIT TEST...
# in the folder where it is built. Prints "== TEST" when it is seen that one runs, and "== TEST status N" at its end. N
# is 77 if it does not run here, 1 if it fails, and 124 if it passes LIMIT, in seconds: then the script ends. What a
# test that fails prints, and its logs' ends, come between.
export FSTYP=$2
cd "$1" || exit 126
limit=$(($3 * ${SLOWDOWN:-1}))
shift 3
test= line= any=

# Say that the test which the line names has begun. xfstests says nothing more of the one before, which has failed.
begin() {
	[[ $line =~ ^(generic/[0-9]+)\  ]] || return 0
	[ "$test" != "${BASH_REMATCH[1]}" ] || return 0
	[ -z "$test" ] || end 1
	test=${BASH_REMATCH[1]} begun=$SECONDS any=yes
	printf '== %s\n' "$test"
}

# Say how the test has ended.
end() {
	[ "$1" != 1 ] || tail -v -n 40 "$RESULT_BASE/$test".{out.bad,full,dmesg} 2> /dev/null | sed 's/^/    /'
	printf '\n== %s status %d\n' "$test" "$1"
	test=
}

# Tell by its whole line whether the test has ended: "NAME  3s" is all that it has if it passed. More follows the line
# of one that failed.
judge() {
	if [[ $line =~ ^$test\ +[0-9]+s$ ]]; then
		end 0
	elif [[ $line = "$test"*"[not run]"* ]]; then
		end 77
	elif [[ $line = Ran:* ]]; then
		end 1
	fi
}

# None of the tests can run.
broken() {
	for test; do
		printf '== %s\n' "$test"
		end 126
	done
	exit 126
}

# Show check these tests alone: it looks at every file of all tests first, which takes minutes through 9p.
few() {
	local all=$RESULT_BASE.tests test file
	mkdir -p "$all/generic" && cp tests/generic/group.list "$all/generic" || return
	for test; do
		for file in "tests/$test" "tests/$test".*; do
			[ ! -e "$file" ] || cp "$file" "$all/generic" || return
		done
	done
	mount --bind "$all" tests
}

{ "mkfs.$FSTYP" -q "$TEST_DEV" && few "$@"; } || broken "$@"
while :; do
	# After a second without a line's end, read(1) returns what there is of it.
	IFS= read -r -t 1 part
	status=$?
	line+=$part
	begin
	if [ -n "$test" ] && [ $((SECONDS - begun)) -ge "$limit" ] && [ $status != 1 ]; then
		printf '%s\n== %s status 124\n' "$line" "$test"
		exit 124
	fi
	[ $status -le 128 ] || continue
	printf '%s\n' "$line"
	[ -z "$test" ] || judge
	[ $status = 0 ] || break
	line=
done < <(./check "$@" 2>&1)
# It may have died in a test, or before the first.
[ -z "$test" ] || end 1
[ -n "$any" ] || broken "$@"
