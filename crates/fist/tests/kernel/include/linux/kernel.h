/* kernel: nothing of it is needed. */
