//! Block devices as files of one directory, for loop devices and programs that want a file:
//! [`DeviceFiles`] is a [`tacita_vfs::FileSystem`] over any [`tacita_block::BlockDevice`]s.

mod device_files;

pub use device_files::DeviceFiles;
