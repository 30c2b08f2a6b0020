package page

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
)

// CreatePulse makes a pulse page, owned by uid if that is not negative, which
// everybody may read who reaches it. One that exists and is sound stays.
func CreatePulse(path string, uid int) error {
	return createPulse(path, uid, 0o644)
}

// CreateOpenPulse makes a pulse page that every user may write who reaches it,
// as CreateOpenState does.
func CreateOpenPulse(path string) error {
	return createPulse(path, -1, 0o666)
}

func createPulse(path string, uid int, mode os.FileMode) error {
	if file, err := open(path, os.O_RDONLY, PulseMagic, SizeOfPulse); err == nil {
		return file.Close()
	}
	return create(path, SizeOfPulse, mode, uid, func(file *os.File) error {
		p := Pulse{Header: Header{Magic: PulseMagic, Version: Version, Size: SizeOfPulse}}
		if _, err := file.WriteAt(encode(&p), 0); err != nil {
			return fmt.Errorf("write pulse page: %w", err)
		}
		return nil
	})
}

// LinkBeat gives a pulse page its further name in the directory of who gives
// way to it. A link to that page stays, one to another is replaced.
func LinkBeat(pulse, beat string) error {
	same, err := SameFile(pulse, beat)
	if err != nil || same {
		return err
	}
	temporary := beat + ".new"
	if err := remove(temporary); err != nil {
		return err
	}
	if err := os.Link(pulse, temporary); err != nil {
		return fmt.Errorf("link pulse page: %w", err)
	}
	if err := os.Rename(temporary, beat); err != nil {
		return errors.Join(fmt.Errorf("link pulse page: %w", err), remove(temporary))
	}
	return nil
}

// UnlinkBeat takes a link away; that there is none is no error.
func UnlinkBeat(beat string) error { return remove(beat) }

// SameFile reports whether two names are of one file; without the second they
// are not.
func SameFile(existing, other string) (bool, error) {
	first, err := os.Lstat(existing)
	if err != nil {
		return false, fmt.Errorf("look at pulse page: %w", err)
	}
	second, err := os.Lstat(other)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("look at pulse page: %w", err)
	}
	return os.SameFile(first, second), nil
}

func remove(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove pulse page: %w", err)
	}
	return nil
}
