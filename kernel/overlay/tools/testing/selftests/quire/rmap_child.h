/* SPDX-License-Identifier: GPL-2.0 */
/* A child that runs one step at a time, so that a test knows how far parent and child are. */
#ifndef RMAP_CHILD_H
#define RMAP_CHILD_H

#include <stdbool.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

/* A child that waits to be told to go on. */
struct child {
	pid_t pid;
	int go, done;
};

static inline void child_says(int fd, char what)
{
	if (write(fd, &what, 1) != 1)
		_exit(99);
}

static inline char child_hears(int fd)
{
	char what = 0;

	return read(fd, &what, 1) == 1 ? what : 0;
}

/* The child reads from @fd[0] and writes to @fd[1]. Returns 0 in the child. */
static inline pid_t fork_child(struct child *child, int fd[2])
{
	int down[2], up[2];

	if (pipe(down) || pipe(up))
		return -1;
	child->pid = fork();
	if (!child->pid) {
		close(down[1]);
		close(up[0]);
		fd[0] = down[0];
		fd[1] = up[1];
		return 0;
	}
	close(down[0]);
	close(up[1]);
	child->go = down[1];
	child->done = up[0];
	return child->pid;
}

/* Let the child take its next step and wait for the end of it. */
static inline bool step(struct child *child)
{
	child_says(child->go, 'g');
	return child_hears(child->done) == 'd';
}

static inline int reap(struct child *child)
{
	int status;

	close(child->go);
	close(child->done);
	if (waitpid(child->pid, &status, 0) != child->pid)
		return -1;
	return WIFEXITED(status) ? WEXITSTATUS(status) : -2;
}

/* In a child: one step of it. The status says which condition failed. */
#define STEP(fd, ...) do {						\
	if (child_hears((fd)[0]) != 'g')				\
		_exit(98);						\
	__VA_ARGS__							\
	child_says((fd)[1], 'd');					\
} while (0)
#define MUST(condition) do {						\
	if (!(condition)) {						\
		fprintf(stderr, "# line %d: %s\n", __LINE__, #condition);	\
		_exit(1);						\
	}								\
} while (0)

#endif /* RMAP_CHILD_H */
