package statefile

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// SpareBytes is how much a file must leave free of a disk that may also have etcd's data:
// etcd's log grows by 64 MB at a time, and etcd ends when it finds no space for that.
const SpareBytes = 256 << 20

// CheckSpace fails if a file of so many bytes would leave less than spare bytes free on the
// disk of a directory.
func CheckSpace(dir string, bytes, spare uint64) error {
	var disk unix.Statfs_t
	if err := unix.Statfs(dir, &disk); err != nil {
		return fmt.Errorf("the space in %s: %w", dir, err)
	}
	if free := disk.Bavail * uint64(disk.Bsize); bytes > free || free-bytes < spare {
		return fmt.Errorf("the file has %d bytes, and the disk of %s has %d free, of which %d must be left; free some", bytes, dir, free, spare)
	}
	return nil
}

// size returns about how many bytes the next file has: those of the newest.
func (d *Dir) size() uint64 {
	numbers, err := d.numbers()
	if err != nil || len(numbers) == 0 {
		return 0
	}
	info, err := os.Stat(d.file(numbers[len(numbers)-1]))
	if err != nil {
		return 0
	}
	return uint64(info.Size())
}
