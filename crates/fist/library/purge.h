/* Overwriting what is stored. A pass is zeros, or of three 0x55, 0xAA and random bytes. */

/* Where a block of an inode lies on the device: 0 if nowhere. */
typedef int (*fist_map_t)(struct inode *inode, sector_t *block);

/*
 * Overwrites the bytes of an inode from `from` to `to` where they are stored: on the device, or in memory if that is
 * where the file system keeps them. The page cache has nothing of them any more, or may not be written later.
 * `map` is for inodes that bmap() knows nothing of, else NULL.
 */
int fistPurgeRange(struct inode *inode, loff_t from, loff_t to, int passes, fist_map_t map);

/* Overwrites one block of the device. */
int fistPurgeBlock(struct super_block *sb, sector_t block, int passes);

/* Overwrites a name, or what else lies in memory that the file system will write. */
void fistPurgeName(void *name, size_t len);

/* Lets go of an inode later, in a kernel thread, so that nobody waits for what its end takes. */
void fistPurgeLater(struct inode *inode);

/* Waits for all that was put off. */
void fistPurgeSync(struct super_block *sb);

