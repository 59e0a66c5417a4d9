//go:build !linux

package fs

import (
	"errors"
	"fmt"
	"runtime"
)

// OS is the real file layer. It is written for Linux, whose flock, fdatasync and fallocate the log's promises rest on; elsewhere the package
// compiles, and every call returns an error that wraps errors.ErrUnsupported.
type OS struct{}

var errPlatform = fmt.Errorf("a log in a directory needs Linux, and this is %s (PostgreSQL, S3 and mem run here): %w", runtime.GOOS, errors.ErrUnsupported)

func (OS) Open(string, int) (File, error)   { return nil, errPlatform }
func (OS) Rename(string, string) error      { return errPlatform }
func (OS) Remove(string) error              { return errPlatform }
func (OS) Mkdir(string) error               { return errPlatform }
func (OS) ReadDir(string) ([]string, error) { return nil, errPlatform }
func (OS) Stat(string) (Stat, error)        { return Stat{}, errPlatform }
func (OS) SyncDir(string) error             { return errPlatform }
func (OS) Magic(string) (int64, error)      { return 0, errPlatform }
