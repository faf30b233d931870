package statefile

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// SpareBytes is what a file must leave of a disk on which etcd's data may be, too: etcd's log
// takes 64 MB at a time, and etcd ends, once it finds none.
const SpareBytes = 256 << 20

// CheckSpace says why a file of so many bytes finds no space in a directory, of whose disk
// some is to be left.
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
