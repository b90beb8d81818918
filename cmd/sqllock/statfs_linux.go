package main

import (
	"fmt"
	"path/filepath"
	"syscall"
)

// networkMagic are the file systems behind which another machine is, by what statfs
// calls them (linux/magic.h, statfs(2)).
var networkMagic = map[uint32]string{
	0x6969: "nfs", 0x517b: "smb", 0xff534d42: "cifs", 0xfe534d42: "smb2", 0x5346414f: "afs", 0x6b414653: "afs",
	0x73757245: "coda", 0x564c: "ncp", 0x01021997: "9p", 0x00c36400: "ceph", 0x0bd00bd0: "lustre",
	0x7461636f: "ocfs2", 0x01161970: "gfs2", 0x19830326: "fhgfs", 0xaad7aaea: "panfs", 0x47504653: "gpfs",
}

// fuseMagic is a file system in user space, which may be either.
const fuseMagic = 0x65735546

// fileSystemOf is what statfs calls the file system of a file, or of the folder that it
// will be made in; 0 if that cannot be told: opening the file will say why.
func fileSystemOf(file string) uint32 {
	var s syscall.Statfs_t
	if syscall.Statfs(file, &s) != nil && syscall.Statfs(filepath.Dir(file), &s) != nil {
		return 0
	}
	return uint32(s.Type)
}

// networkFileSystem is the name of the network file system that a file is on, empty if
// it is on another, or that cannot be told.
func networkFileSystem(file string) string { return networkMagic[fileSystemOf(file)] }

// userSpace reports whether a file is on a file system in user space (FUSE), behind
// which another machine may be.
func userSpace(file string) bool { return mayBeRemote(fileSystemOf(file)) }

func mayBeRemote(magic uint32) bool { return magic == fuseMagic }

// fileSystemName is for people.
func fileSystemName(file string) string {
	names := map[uint32]string{
		0xef53: "ext4", 0x9123683e: "btrfs", 0x58465342: "xfs", 0x01021994: "tmpfs", 0x794c7630: "overlayfs",
		0x2fc12fc1: "zfs", 0xf2f52010: "f2fs", 0x858458f6: "ramfs", 0xca451a4e: "bcachefs", fuseMagic: "fuse",
	}
	magic := fileSystemOf(file)
	if name := names[magic]; name != "" {
		return name
	}
	return fmt.Sprintf("%#x", magic)
}
