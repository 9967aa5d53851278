/* As much of the types of vectors as the sample needs. */
struct file_operations {
	int (*open) (struct inode *, struct file *);
};
struct inode_operations {
	int (*unlink) (struct inode *, struct dentry *);
	int (*rmdir) (struct inode *, struct dentry *);
};
struct address_space_operations {
	int (*read_folio) (struct file *, struct folio *);
};
struct super_operations {
	void (*evict_inode) (struct inode *);
};
