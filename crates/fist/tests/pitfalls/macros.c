#include <linux/fs.h>

#define max_t(type, a, b) ((type)(a) > (type)(b) ? (type)(a) : (type)(b))
#define member_of(p, type, member) ((type *)(p))
#define for_each_number(n, limit) for ((n) = 0; (n) < (limit); (n)++)
#define __releases(x)

struct holder {
	struct inode inode;
};

/* Macros that take types, and loops that are macros. */
static int sample_unlink(struct inode *dir, struct dentry *dentry) __releases(dir)
{
	struct holder *holder = member_of(dir, struct holder, inode);
	int n;

	for_each_number(n, max_t(unsigned int, holder->inode.i_nlink, 3))
		if (n == 2)
			return max_t(int, n, 1);
	for_each_number(n, 2) {
		if (dentry)
			return -n;
	}
	return ({ int value = n; if (!value) return -9; value; });
}

const struct inode_operations sample_inode_operations = {
	.unlink = sample_unlink,
};
