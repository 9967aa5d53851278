/* Mount options: taken out before the file system looks at its own, kept by superblock. */

struct fist_mounted {
	struct list_head list;
	struct rcu_head rcu;
	const struct super_block *sb;
	bool is_going;
	struct fist_mnt mnt;
};

static LIST_HEAD(fist_mounts);
static DEFINE_SPINLOCK(fist_mounts_lock);

/* A superblock that goes may have its address taken by the next before it is forgotten. */
static struct fist_mounted *fist_find(const struct super_block *sb, bool even_going)
{
	struct fist_mounted *mounted;

	list_for_each_entry_rcu(mounted, &fist_mounts, list, lockdep_is_held(&fist_mounts_lock))
		if (mounted->sb == sb && (even_going || !mounted->is_going))
			return mounted;
	return NULL;
}

/* What was chosen at mounting; the defaults before the file system is mounted. Valid while it is. */
const struct fist_mnt *fist_mnt(const struct super_block *sb)
{
	const struct fist_mounted *mounted;

	rcu_read_lock();
	mounted = fist_find(sb, false);
	if (!mounted)
		mounted = fist_find(sb, true);
	rcu_read_unlock();
	return mounted ? &mounted->mnt : &fist_defaults;
}

static int fist_keep(const struct super_block *sb, const struct fist_mnt *mnt)
{
	struct fist_mounted *mounted = kzalloc(sizeof(*mounted), GFP_KERNEL);

	if (!mounted)
		return -ENOMEM;
	mounted->sb = sb;
	mounted->mnt = *mnt;
	spin_lock(&fist_mounts_lock);
	if (fist_find(sb, false)) {
		/* Mounted once more: the first choice stays. */
		kfree(mounted);
	} else {
		list_add_rcu(&mounted->list, &fist_mounts);
	}
	spin_unlock(&fist_mounts_lock);
	return 0;
}

void fist_kill_sb(struct super_block *sb, void (*kill)(struct super_block *))
{
	struct fist_mounted *mounted;

	spin_lock(&fist_mounts_lock);
	mounted = fist_find(sb, false);
	if (mounted)
		mounted->is_going = true;
	spin_unlock(&fist_mounts_lock);
	kill(sb);
	if (!mounted)
		return;
	spin_lock(&fist_mounts_lock);
	list_del_rcu(&mounted->list);
	spin_unlock(&fist_mounts_lock);
	kfree_rcu(mounted, rcu);
}

/* Takes our options out of a text of options, which stays where it is. */
static int fist_strip(char *options, struct fist_mnt *mnt)
{
	char *copy, *rest, *option, *end = options;
	int taken = 0;

	copy = rest = kstrdup(options, GFP_KERNEL);
	if (!copy)
		return -ENOMEM;
	while (taken >= 0 && (option = strsep(&rest, ",")) != NULL) {
		size_t len = strlen(option);
		char *value = strchr(option, '=');

		if (value)
			*value++ = '\0';
		taken = fist_take(mnt, option, value);
		if (taken == 0 && len) {
			if (value)
				value[-1] = '=';
			if (end != options)
				*end++ = ',';
			memcpy(end, option, len);
			end += len;
		}
	}
	*end = '\0';
	kfree(copy);
	if (taken < 0)
		pr_err(FIST_NAME ": a mount option has a value that it cannot have\n");
	return taken < 0 ? taken : 0;
}

struct dentry *fist_mount(struct file_system_type *type, int flags, const char *device, void *data,
			  struct dentry *(*mount)(struct file_system_type *, int, const char *, void *))
{
	struct fist_mnt mnt = fist_defaults;
	struct dentry *root;
	int error = 0;

	if (data && !(type->fs_flags & FS_BINARY_MOUNTDATA))
		error = fist_strip(data, &mnt);
	if (error)
		return ERR_PTR(error);
	root = mount(type, flags, device, data);
	if (IS_ERR(root))
		return root;
	error = fist_keep(root->d_sb, &mnt);
	if (error) {
		struct super_block *sb = root->d_sb;

		dput(root);
		deactivate_locked_super(sb);
		return ERR_PTR(error);
	}
	return root;
}

/* Operations of a context of mounting, ours before the file system's own. */
struct fist_context {
	struct fs_context_operations ops;
	const struct fs_context_operations *own;
	struct fist_mnt mnt;
};

static struct fist_context *fist_context(struct fs_context *fc)
{
	return container_of(fc->ops, struct fist_context, ops);
}

static int fist_parse_param(struct fs_context *fc, struct fs_parameter *param)
{
	struct fist_context *context = fist_context(fc);
	bool is_text = param->type == fs_value_is_string;
	int taken = 0;

	if (is_text || param->type == fs_value_is_flag)
		taken = fist_take(&context->mnt, param->key, is_text ? param->string : NULL);
	if (taken)
		return taken < 0 ? taken : 0;
	return context->own->parse_param ? context->own->parse_param(fc, param) : -ENOPARAM;
}

static int fist_get_tree(struct fs_context *fc)
{
	struct fist_context *context = fist_context(fc);
	int error = context->own->get_tree(fc);

	if (error)
		return error;
	error = fist_keep(fc->root->d_sb, &context->mnt);
	if (error) {
		struct super_block *sb = fc->root->d_sb;

		dput(fc->root);
		fc->root = NULL;
		deactivate_locked_super(sb);
	}
	return error;
}

static void fist_free_context(struct fs_context *fc)
{
	struct fist_context *context = fist_context(fc);

	fc->ops = context->own;
	if (context->own->free)
		context->own->free(fc);
	kfree(context);
}

/* The kernel frees a copy that failed, too. */
static int fist_copy_context(struct fs_context *fc, struct fs_context *from)
{
	const struct fs_context_operations *own = fist_context(from)->own;
	struct fist_context *context = kmemdup(fist_context(from), sizeof(*context), GFP_KERNEL);

	fc->ops = context ? &context->ops : own;
	return context ? own->dup(fc, from) : -ENOMEM;
}

int fist_init_fs_context(struct fs_context *fc, int (*init)(struct fs_context *))
{
	struct fist_context *context;
	int error = init(fc);

	if (error)
		return error;
	context = kzalloc(sizeof(*context), GFP_KERNEL);
	if (!context) {
		if (fc->ops->free)
			fc->ops->free(fc);
		return -ENOMEM;
	}
	context->own = fc->ops;
	context->ops = *fc->ops;
	context->ops.parse_param = fist_parse_param;
	context->ops.get_tree = fist_get_tree;
	context->ops.free = fist_free_context;
	if (context->own->dup)
		context->ops.dup = fist_copy_context;
	context->mnt = fist_defaults;
	fc->ops = &context->ops;
	return 0;
}
