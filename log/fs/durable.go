package fs

import (
	"errors"
	iofs "io/fs"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// nonLocal names the file systems that keep nothing, or that do not keep what flock and fdatasync promise on a local one. FUSE
// may be anything. A container's overlay is as good as the disk below it, which it does not tell.
var nonLocal = map[int64]string{
	unix.TMPFS_MAGIC:      "tmpfs",
	unix.RAMFS_MAGIC:      "ramfs",
	unix.HUGETLBFS_MAGIC:  "hugetlbfs",
	unix.NFS_SUPER_MAGIC:  "NFS",
	unix.SMB_SUPER_MAGIC:  "SMB",
	unix.CIFS_SUPER_MAGIC: "SMB (cifs)",
	unix.SMB2_SUPER_MAGIC: "SMB 2",
	unix.FUSE_SUPER_MAGIC: "FUSE",
	unix.V9FS_MAGIC:       "9p",
	unix.AFS_SUPER_MAGIC:  "AFS",
	unix.AFS_FS_MAGIC:     "AFS",
	unix.CODA_SUPER_MAGIC: "Coda",
	unix.CEPH_SUPER_MAGIC: "Ceph",
	unix.NCP_SUPER_MAGIC:  "NCP",
	0x0bd00bd0:            "Lustre",
	0x47504653:            "GPFS",
	0x786f4256:            "vboxsf",
}

// local names the usual ones, for people.
var local = map[int64]string{
	unix.EXT4_SUPER_MAGIC:      "ext4",
	unix.XFS_SUPER_MAGIC:       "xfs",
	unix.BTRFS_SUPER_MAGIC:     "btrfs",
	unix.F2FS_SUPER_MAGIC:      "f2fs",
	unix.OVERLAYFS_SUPER_MAGIC: "overlayfs",
	unix.REISERFS_SUPER_MAGIC:  "reiserfs",
	unix.NILFS_SUPER_MAGIC:     "nilfs2",
	0x2fc12fc1:                 "zfs",
	0x3153464a:                 "jfs",
	0xca451a4e:                 "bcachefs",
}

// Durable reports whether dir, or what of its parents is there, lies on a file system that keeps what is synced and on which
// locks hold, and that file system's name. tmpfs and ramfs keep nothing; NFS, SMB and FUSE do not keep the lock's promises.
func Durable(dir string) (durable bool, fsName string, err error) { return durableOn(OS{}, dir) }

func durableOn(fsys FS, dir string) (bool, string, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return false, "", err
	}
	for {
		magic, err := fsys.Magic(dir)
		if errors.Is(err, iofs.ErrNotExist) && dir != filepath.Dir(dir) {
			dir = filepath.Dir(dir)
			continue
		}
		if err != nil {
			return false, "", err
		}
		if name, ok := nonLocal[magic]; ok {
			return false, name, nil
		}
		if name, ok := local[magic]; ok {
			return true, name, nil
		}
		return true, "an unknown local file system", nil
	}
}
