/* uidgid: nothing of it is needed. */
