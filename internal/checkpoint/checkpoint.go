// Package checkpoint keeps the state that a daemon needs when it starts again,
// whenever it ended. The state is one JSON document with a version and a checksum.
// It is replaced as a whole, so a reader sees the old or the new one.
//
// A checkpoint lies on the same tmpfs as what it describes, so both end with the
// machine.
package checkpoint

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"
)

// The errors of Load. They differ because their remedies do.
var (
	// ErrDamaged is a file whose content is not what was saved.
	ErrDamaged = errors.New("damaged checkpoint")
	// ErrVersion is a file of another version of Divvy.
	ErrVersion = errors.New("checkpoint of another version")
)

// File is one checkpoint, holding a T. Its methods are not safe for concurrent
// use: the owner of the state orders them.
type File[T any] struct {
	path    string
	kind    string
	version int
	older   []Older[T]
}

// Older reads the state as an earlier version wrote it. Decode gets that
// version's state, whose checksum holds; [Strict] decodes into a type that is
// frozen as that version had it.
type Older[T any] struct {
	Version int
	Decode  func(state []byte) (T, error)
}

// NewFile names a checkpoint. The kind guards against reading another
// program's state, the version against another layout of T: raise it whenever
// an older reader would misunderstand, and add how the version before is read.
func NewFile[T any](path, kind string, version int, older ...Older[T]) *File[T] {
	return &File[T]{path: path, kind: kind, version: version, older: older}
}

// header is what stands before the state.
type header struct {
	Kind    string `json:"kind"`
	Version int    `json:"version"`
	SHA256  string `json:"sha256"`
}

type envelope struct {
	header
	State json.RawMessage `json:"state"`
}

// Load returns the state last saved. A file that does not exist is the zero
// state.
func (f *File[T]) Load() (T, error) {
	var state T
	data, err := f.read()
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return state, nil
	case err != nil:
		return state, fmt.Errorf("read checkpoint: %w", err)
	}
	return f.Decode(data)
}

// largest bounds a checkpoint, in bytes: far more than any daemon has to keep.
const largest = 256 << 20

// read returns what lies in the file. Anything but a file of this user's is damage: a
// folder, or a pipe for which nobody writes.
func (f *File[T]) read() ([]byte, error) {
	file, err := os.OpenFile(f.path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if errors.Is(err, syscall.ELOOP) || errors.Is(err, syscall.ENXIO) {
		if info, _ := os.Lstat(f.path); info != nil && !info.Mode().IsRegular() {
			return nil, fmt.Errorf("%w: %s is no file", ErrDamaged, f.path)
		}
	}
	if err != nil {
		return nil, err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return nil, err
	}
	stat, told := info.Sys().(*syscall.Stat_t)
	switch {
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("%w: %s is no file", ErrDamaged, f.path)
	case told && int(stat.Uid) != os.Geteuid():
		return nil, fmt.Errorf("%w: %s belongs to another user", ErrDamaged, f.path)
	case info.Size() > largest:
		return nil, fmt.Errorf("%w: %s has %d bytes", ErrDamaged, f.path, info.Size())
	}
	return io.ReadAll(io.LimitReader(file, largest))
}

// Decode reads what Encode wrote, for a state that lies elsewhere than in the file.
func (f *File[T]) Decode(data []byte) (T, error) {
	var zero T
	var e envelope
	if err := json.Unmarshal(data, &e); err != nil {
		return zero, fmt.Errorf("%w %s: %w", ErrDamaged, f.path, err)
	}
	decode := f.decoder(e.Version)
	if e.Kind != f.kind || decode == nil {
		return zero, fmt.Errorf("%w: %s holds %s version %d, this program reads %s version %d",
			ErrVersion, f.path, e.Kind, e.Version, f.kind, f.version)
	}
	// The checksum is over the compact form, so that a person may indent it.
	var compact bytes.Buffer
	if err := json.Compact(&compact, e.State); err != nil {
		return zero, fmt.Errorf("%w %s: %w", ErrDamaged, f.path, err)
	}
	if sum := checksum(compact.Bytes()); sum != e.SHA256 {
		return zero, fmt.Errorf("%w %s: its checksum is %s and should be %s", ErrDamaged, f.path, sum, e.SHA256)
	}
	state, err := decode(compact.Bytes())
	if err != nil {
		return zero, fmt.Errorf("%w %s: %w", ErrDamaged, f.path, err)
	}
	return state, nil
}

// decoder reads the state of a version, nil for one that nobody here knows.
func (f *File[T]) decoder(version int) func([]byte) (T, error) {
	if version == f.version {
		return Strict[T]
	}
	for _, o := range f.older {
		if o.Version == version {
			return o.Decode
		}
	}
	return nil
}

// Strict decodes a state and refuses fields that T does not have, because the next
// Save would lose them.
func Strict[T any](data []byte) (T, error) {
	var state, zero T
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&state); err != nil {
		return zero, err
	}
	return state, nil
}

// Save replaces the state. When it returns nil the new state survives the end
// of the process and of the machine's file system cache; after an error the old
// one is still there.
func (f *File[T]) Save(state T) error {
	data, err := f.Encode(state)
	if err != nil {
		return err
	}
	if err := f.replace(data); errors.Is(err, syscall.ENOSPC) {
		return fmt.Errorf("save checkpoint: %w: make room in %s", err, filepath.Dir(f.path))
	} else if err != nil {
		return fmt.Errorf("save checkpoint: %w", err)
	}
	return nil
}

// Encode is the content of the file with that state.
func (f *File[T]) Encode(state T) ([]byte, error) {
	// HTML escaping would let Compact and Marshal disagree.
	var body bytes.Buffer
	encoder := json.NewEncoder(&body)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(state); err != nil {
		return nil, fmt.Errorf("encode checkpoint: %w", err)
	}
	compact := bytes.TrimSpace(body.Bytes())
	head, err := json.Marshal(header{Kind: f.kind, Version: f.version, SHA256: checksum(compact)})
	if err != nil {
		return nil, fmt.Errorf("encode checkpoint: %w", err)
	}
	// The state is inserted as it is. Encoding it inside an envelope would parse it again.
	return slices.Concat(bytes.TrimSuffix(head, []byte("}")), []byte(`,"state":`), compact, []byte("}\n")), nil
}

func (f *File[T]) replace(data []byte) error {
	temporary := f.path + ".new"
	file, err := os.OpenFile(temporary, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = file.Write(data)
	err = errors.Join(err, file.Sync(), file.Close())
	if err != nil {
		return errors.Join(err, os.Remove(temporary))
	}
	if err := os.Rename(temporary, f.path); err != nil {
		return err
	}
	dir, err := os.Open(filepath.Dir(f.path))
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

// Remove deletes the checkpoint: the zero state.
func (f *File[T]) Remove() error {
	if err := os.Remove(f.path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove checkpoint: %w", err)
	}
	return nil
}

// asides bounds how many names are tried for what is set aside.
const asides = 10

// SetAside renames a checkpoint that cannot be read, so that a person can look
// at it, and returns its new name.
func (f *File[T]) SetAside() (string, error) {
	aside := f.path + ".unreadable"
	for n := 2; n <= asides; n++ {
		if _, err := os.Lstat(aside); errors.Is(err, fs.ErrNotExist) {
			break
		}
		aside = fmt.Sprintf("%s.unreadable.%d", f.path, n)
	}
	if err := os.Rename(f.path, aside); err != nil {
		return "", fmt.Errorf("set checkpoint aside: %w", err)
	}
	return aside, nil
}

func checksum(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}
