#include <linux/fs.h>

/* Values that are no ints: pointers, truth, sizes, nothing. */
static struct dentry *sample_lookup(struct inode *dir, struct dentry *dentry, unsigned int flags)
{
	if (flags)
		return ERR_PTR(-36);
	return NULL;
}

static const char *sample_get_link(struct dentry *dentry, struct inode *inode, int *done)
{
	return "target";
}

static bool sample_dirty_folio(struct address_space *mapping, struct folio *folio)
{
	return mapping && folio;
}

static ssize_t sample_read(struct file *file, char __user *buffer, size_t count, loff_t *at)
{
	return count;
}

static void sample_evict(struct inode *inode)
{
	if (!inode->i_nlink)
		return;
	inode->i_size = 0;
}

static void sample_readahead(struct readahead_control *control)
{
	if (control)
		control->mapping = NULL;
	return;
}

static const struct inode_operations sample_inode_operations = {
	.lookup = sample_lookup,
	.get_link = sample_get_link,
};
static const struct address_space_operations sample_aops = {
	.dirty_folio = sample_dirty_folio,
	.readahead = sample_readahead,
};
static const struct file_operations sample_file_operations = {
	.read = sample_read,
};
static const struct super_operations sample_sops = {
	.evict_inode = sample_evict,
};
