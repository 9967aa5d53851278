/*
 * Pages of memory that hold a pattern:
 *
 *   memory write FILE KEY PAGES   fills a file through a mapping, so that nothing else ever holds it
 *   memory count KEY...           counts them in all of the machine's memory, free or not, by /proc/kcore
 *
 * A pattern is computed word by word: it stands in no program and in no buffer.
 */

#include <elf.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define PAGE 4096
#define WORDS (PAGE / 8)
#define MOST 16

static uint64_t word(uint64_t key, unsigned int at)
{
	uint64_t mixed = (key << 32 | at) * 0x9e3779b97f4a7c15u;

	return mixed ^ mixed >> 29;
}

static int fail(const char *what)
{
	perror(what);
	return 1;
}

static int fill(const char *path, uint64_t key, size_t pages)
{
	int file = open(path, O_RDWR | O_CREAT, 0600);
	volatile uint64_t *words;
	size_t at;

	if (file < 0 || ftruncate(file, pages * PAGE))
		return fail(path);
	words = mmap(NULL, pages * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
	if (words == MAP_FAILED)
		return fail(path);
	for (at = 0; at < pages * WORDS; at++)
		words[at] = word(key, at % WORDS);
	return 0;
}

static int holds(const uint64_t *page, uint64_t key)
{
	unsigned int at;

	for (at = 0; at < WORDS; at++)
		if (page[at] != word(key, at))
			return 0;
	return 1;
}

/* Where a page of memory lies in /proc/kcore: -1 if nowhere. */
static off_t place(const Elf64_Phdr *parts, int many, uint64_t page)
{
	int at;

	for (at = 0; at < many; at++)
		if (parts[at].p_type == PT_LOAD && parts[at].p_paddr != (uint64_t)-1 &&
		    page - parts[at].p_paddr < parts[at].p_filesz)
			return parts[at].p_offset + (page - parts[at].p_paddr);
	return -1;
}

static int count(char **keys, int many)
{
	static uint64_t page[WORDS] __attribute__((aligned(PAGE)));
	static Elf64_Phdr parts[256];
	size_t found[MOST] = { 0 }, pages = 0;
	int core = open("/proc/kcore", O_RDONLY), key;
	FILE *ram = fopen("/proc/iomem", "r");
	uint64_t first, last;
	char line[256];
	Elf64_Ehdr head;

	if (core < 0 || !ram || pread(core, &head, sizeof(head), 0) != sizeof(head) || head.e_phnum > 256 ||
	    pread(core, parts, head.e_phnum * sizeof(*parts), head.e_phoff) < 0)
		return fail("/proc/kcore");
	while (fgets(line, sizeof(line), ram)) {
		if (line[0] == ' ' || !strstr(line, ": System RAM") ||
		    sscanf(line, "%lx-%lx", &first, &last) != 2)
			continue;
		for (first = (first + PAGE - 1) & -PAGE; first + PAGE - 1 <= last; first += PAGE) {
			off_t at = place(parts, head.e_phnum, first);

			/* What was read before would be found here once more. */
			memset(page, 0, sizeof(page));
			if (at < 0 || pread(core, page, PAGE, at) != PAGE)
				continue;
			pages++;
			for (key = 0; key < many; key++)
				found[key] += holds(page, strtoul(keys[key], NULL, 0));
		}
	}
	for (key = 0; key < many; key++)
		printf("%s=%zu ", keys[key], found[key]);
	printf("of %zu pages\n", pages);
	return 0;
}

int main(int argc, char **argv)
{
	if (argc == 5 && !strcmp(argv[1], "write"))
		return fill(argv[2], strtoul(argv[3], NULL, 0), strtoul(argv[4], NULL, 0));
	if (argc > 2 && argc <= 2 + MOST && !strcmp(argv[1], "count"))
		return count(argv + 2, argc - 2);
	fprintf(stderr, "usage: memory write FILE KEY PAGES | count KEY...\n");
	return 2;
}
