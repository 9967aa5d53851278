/* printk: nothing of it is needed. */
