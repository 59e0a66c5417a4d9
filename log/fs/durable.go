package fs

import (
	"errors"
	iofs "io/fs"
	"path/filepath"
)

// nonLocal names the file systems that keep nothing, or that do not keep what flock and fdatasync promise on a local one. FUSE
// may be anything. A container's overlay is as good as the disk below it, which it does not tell. The numbers are Linux's (linux/magic.h).
var nonLocal = map[int64]string{
	0x01021994: "tmpfs",
	0x858458f6: "ramfs",
	0x958458f6: "hugetlbfs",
	0x00006969: "NFS",
	0x0000517b: "SMB",
	0xff534d42: "SMB (cifs)",
	0xfe534d42: "SMB 2",
	0x65735546: "FUSE",
	0x01021997: "9p",
	0x5346414f: "AFS",
	0x6b414653: "AFS",
	0x73757245: "Coda",
	0x00c36400: "Ceph",
	0x0000564c: "NCP",
	0x0bd00bd0: "Lustre",
	0x47504653: "GPFS",
	0x786f4256: "vboxsf",
}

// local names the usual ones, for people.
var local = map[int64]string{
	0x0000ef53: "ext4",
	0x58465342: "xfs",
	0x9123683e: "btrfs",
	0xf2f52010: "f2fs",
	0x794c7630: "overlayfs",
	0x52654973: "reiserfs",
	0x00003434: "nilfs2",
	0x2fc12fc1: "zfs",
	0x3153464a: "jfs",
	0xca451a4e: "bcachefs",
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
