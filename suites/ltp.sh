# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
# Set up cases of the Linux Test Project; suites/cases.sh reads this.
LTPROOT=$(realpath "$(dirname "$setup")/../build/suites/ltp/installed")
export LTPROOT PATH=$PATH:$LTPROOT/testcases/bin LTP_COLORIZE_OUTPUT=n
export LTP_TIMEOUT_MUL=$((4 * SLOWDOWN)) LTP_RUNTIME_MUL=0.2
