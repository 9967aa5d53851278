/*
 * Overwriting what is stored. A method is a letter of the paper's table 1: c is zeros; e is 0x55, 0xAA and random
 * bytes; d is e, and the last pass is read back from the device; h is random bytes, zeros and ones.
 */

/* Where a block of an inode lies on the device: 0 if nowhere. */
typedef int (*fist_map_t)(struct inode *inode, sector_t *block);

/* Writes to a file at the place of the kiocb. */
typedef ssize_t (*fist_write_t)(struct kiocb *kiocb, struct iov_iter *from);

/*
 * Overwrites the bytes of an inode from `from` to `to` where they are stored: on the device, or in memory if that is
 * where the file system keeps them. The page cache has nothing of them any more, or may not be written later.
 * `map` is for inodes that bmap() knows nothing of, else NULL.
 */
int fistPurgeRange(struct inode *inode, loff_t from, loff_t to, char method, fist_map_t map);

/* Overwrites one block of the device. */
int fistPurgeBlock(struct super_block *sb, sector_t block, char method);

/*
 * Overwrites the bytes of a file by writing to it, for file systems that leave the storing to another; nothing is
 * read back. Without `mount` the file system is mounted for it, unseen. `write` is for callers who hold the lock of
 * the inode, else NULL.
 */
int fistPurgeFile(struct vfsmount *mount, struct dentry *dentry, loff_t from, loff_t to, char method,
		  fist_write_t write);

/* Overwrites a name, or what else lies in memory that the file system will write. */
void fistPurgeName(void *name, size_t len);

/* Lets go of an inode later, in a kernel thread, so that nobody waits for what its end takes. */
void fistPurgeLater(struct inode *inode);

/* Waits for all that was put off. */
void fistPurgeSync(struct super_block *sb);

