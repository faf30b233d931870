// Package files replaces files as a whole, and reads them again when they change.
//
// It must never leave half a file under its name, nor read without bound.
package files

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/understudy-store/understudy/internal/clock"
)

// Place syncs a temporary file and renames it to name, durably, replacing an older file. Both
// must be in the same folder. If err, from writing the file, is not nil, or if check or any
// step fails, Place removes the temporary file. check may be nil.
func Place(aside *os.File, name string, err error, check func() error) error {
	if err == nil {
		err = aside.Sync() // else a loss of power may leave an empty file
	}
	if closed := aside.Close(); err == nil {
		err = closed
	}
	if err == nil && check != nil {
		err = check()
	}
	if err == nil {
		err = os.Rename(aside.Name(), name)
	}
	if err != nil {
		_ = os.Remove(aside.Name())
		return err
	}
	folder, err := os.Open(filepath.Dir(name))
	if err != nil {
		return err
	}
	return errors.Join(folder.Sync(), folder.Close())
}

// Read reads a file of at most that many bytes.
func Read(name string, most int) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	b, err := io.ReadAll(io.LimitReader(f, int64(most)+1))
	if err == nil && len(b) > most {
		err = fmt.Errorf("%s has more than %d bytes", name, most)
	}
	return b, err
}

// Reload calls load every second, until the context ends. load reads files, and applies their
// content if it has changed. Of consecutive failures with the same text, refused gets the
// first.
func Reload(ctx context.Context, load func() error, refused func(error)) error {
	last := ""
	return clock.Every(ctx, time.Second, func() error {
		text := ""
		if err := load(); err != nil {
			if text = err.Error(); text != last {
				refused(err)
			}
		}
		last = text
		return nil
	})
}
