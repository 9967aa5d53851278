#include <linux/fs.h>

/* Words before a function's name that are macros, and ends that are there by a condition. */
#define STATIC static noinline

STATIC int
sample_open(
	struct inode		*inode,
	struct file		*file)
{
	return 0;
}

STATIC ssize_t sample_read(struct file *file, char __user *buffer, size_t count, loff_t *at)
{
	return count;
}

static __maybe_unused int sample_release(struct inode *inode, struct file *file)
{
	return -5;
}

STATIC struct dentry *sample_lookup(struct inode *dir, struct dentry *dentry, unsigned int flags)
{
	return NULL;
}

static void __cold sample_evict(struct inode *inode)
{
	inode->i_size = 0;
}

STATIC void
sample_put(
	struct super_block	*sb)
{
	sb->s_fs_info = NULL;
#ifdef CONFIG_SAMPLE
	return;
#endif
}

STATIC const struct inode_operations sample_inode_operations = {
	.lookup = sample_lookup,
};
static const struct file_operations sample_file_operations = {
	.open = sample_open,
	.read = sample_read,
	.release = sample_release,
};
static const struct super_operations sample_sops = {
	.evict_inode = sample_evict,
	.put_super = sample_put,
};
