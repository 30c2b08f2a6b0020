package page

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
)

// CreatePulse makes a pulse page that everybody may read, owned by uid if that is
// not negative. One that exists and is sound stays.
func CreatePulse(path string, uid int) error {
	return createPulse(path, uid, 0o644)
}

// CreateOpenPulse makes a pulse page that every user may write, as CreateOpenState
// does.
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

// LinkBeat links a pulse page into the directory of a tenant that gives way to it.
// A link to that page stays, one to another page is replaced.
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

// UnlinkBeat removes such a link, if it is there.
func UnlinkBeat(beat string) error { return remove(beat) }

// SameFile reports whether two names are links to one file; if the second does not
// exist, they are not.
func SameFile(existing, other string) (bool, error) {
	first, err := os.Lstat(existing)
	if err != nil {
		return false, fmt.Errorf("stat pulse page: %w", err)
	}
	second, err := os.Lstat(other)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("stat pulse page: %w", err)
	}
	return os.SameFile(first, second), nil
}

func remove(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove pulse page: %w", err)
	}
	return nil
}
