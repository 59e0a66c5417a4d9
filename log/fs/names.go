package fs

import (
	"fmt"
	"path/filepath"
	"strconv"

	"github.com/steledb/stele/log"
)

// This file makes and parses the name of every file and directory.
const (
	lockName        = "LOCK"
	rootName        = "ROOT"
	rootLockName    = "ROOT.lock"
	rootTempName    = "ROOT.next"    // a root on its way
	rootReserveName = "ROOT.reserve" // room for one more root on a full disk

	fileTempName    = "next"    // an epoch file on its way
	fileReserveName = "reserve" // room for one more start on a full disk
	blobDirName     = "blobs"
	blobTempPrefix  = "." // a blob on its way
	fileSuffix      = ".log"
)

// fileName is an epoch file's name: its number and its epoch, in hexadecimal and fixed width, so that names sort in the order
// in which the files were made. Numbers are dense within an instance.
func fileName(seq uint32, epoch uint64) string {
	return fmt.Sprintf("%08x-%016x%s", seq, epoch, fileSuffix)
}

// parseFileName is the inverse of fileName. Other names are none of an epoch file.
func parseFileName(name string) (seq uint32, epoch uint64, ok bool) {
	if len(name) != 8+1+16+len(fileSuffix) || name[8] != '-' {
		return 0, 0, false
	}
	s, err1 := strconv.ParseUint(name[:8], 16, 32)
	e, err2 := strconv.ParseUint(name[9:25], 16, 64)
	if err1 != nil || err2 != nil || fileName(uint32(s), e) != name {
		return 0, 0, false
	}
	return uint32(s), e, true
}

// path joins names below the database's directory.
func (l *Log) path(names ...string) string {
	return filepath.Join(append([]string{l.dir}, names...)...)
}

func (l *Log) instanceDir(inst log.ID) string { return l.path(inst.String()) }
func (l *Log) blobDir(inst log.ID) string     { return l.path(inst.String(), blobDirName) }
