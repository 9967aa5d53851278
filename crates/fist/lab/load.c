/*
 * Loads for a file system, the same every time:
 *
 *   load mail DIR FILES TRANSACTIONS   as Postmark: files of 512 bytes to 64 KiB; as many transactions read, append,
 *                                      create and delete, and after every hundred all is written
 *   load tests DIR COUNT               as configure: a short file that is written, read and deleted, so many times
 */

#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char bytes[65536];
static uint32_t state = 16;

static uint32_t random_below(uint32_t limit)
{
	state = state * 1664525 + 1013904223;
	return (uint64_t)state * limit >> 32;
}

static void must(int holds, const char *what)
{
	if (holds)
		return;
	perror(what);
	exit(1);
}

static const char *name(const char *folder, uint32_t number)
{
	static char path[4096];

	snprintf(path, sizeof(path), "%s/%u", folder, number);
	return path;
}

static void put(const char *path, int flags, size_t len)
{
	int file = open(path, O_WRONLY | O_CREAT | flags, 0600);

	must(file >= 0 && write(file, bytes, len) == (ssize_t)len && close(file) == 0, path);
}

static void get(const char *path)
{
	int file = open(path, O_RDONLY);
	ssize_t len = 1;

	while (file >= 0 && len > 0)
		len = read(file, bytes, sizeof(bytes));
	must(file >= 0 && len == 0 && close(file) == 0, path);
}

static void mail(const char *folder, uint32_t files, uint32_t transactions)
{
	char *is_there = calloc(files, 1);
	uint32_t at, number;

	must(is_there != NULL, "memory");
	for (at = 0; at < files; at++) {
		put(name(folder, at), O_TRUNC, 512 + random_below(sizeof(bytes) - 512));
		is_there[at] = 1;
	}
	for (at = 0; at < transactions; at++) {
		if (at % 100 == 0)
			sync();
		number = random_below(files);
		switch (is_there[number] ? random_below(3) : 3) {
		case 0:
			get(name(folder, number));
			break;
		case 1:
			put(name(folder, number), O_APPEND, 512 + random_below(3584));
			break;
		case 2:
			must(unlink(name(folder, number)) == 0, "unlink");
			is_there[number] = 0;
			break;
		default:
			put(name(folder, number), O_TRUNC, 512 + random_below(sizeof(bytes) - 512));
			is_there[number] = 1;
		}
	}
	for (at = 0; at < files; at++)
		must(!is_there[at] || unlink(name(folder, at)) == 0, "unlink");
}

int main(int argc, char **argv)
{
	uint32_t at;

	memset(bytes, 'a', sizeof(bytes));
	if (argc == 5 && !strcmp(argv[1], "mail")) {
		mail(argv[2], strtoul(argv[3], NULL, 0), strtoul(argv[4], NULL, 0));
		return 0;
	}
	if (argc == 4 && !strcmp(argv[1], "tests")) {
		for (at = 0; at < strtoul(argv[3], NULL, 0); at++) {
			put(name(argv[2], 0), O_TRUNC, 300);
			get(name(argv[2], 0));
			must(unlink(name(argv[2], 0)) == 0, "unlink");
		}
		return 0;
	}
	fprintf(stderr, "usage: load mail DIR FILES TRANSACTIONS | tests DIR COUNT\n");
	return 2;
}
