# From Linux 6.12 to 6.1, which calls the mapping of owners otherwise:
#   sed -i -f for-6.1.sed *.c *.h
s/struct mnt_idmap /struct user_namespace /g
s/\bmnt_idmap(/mnt_user_ns(/g
s/\b\(old\|new\)_mnt_idmap\b/\1_mnt_userns/g
