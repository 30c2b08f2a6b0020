package page

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Text64 puts a string into a field, cut to fit with its final zero.
func Text64(s string) (field [64]byte) {
	copy(field[:len(field)-1], s)
	return field
}

// Text32 puts a string into a field, cut to fit with its final zero.
func Text32(s string) (field [32]byte) {
	copy(field[:len(field)-1], s)
	return field
}

// TextPipe puts a string into a field, cut to fit with its final zero.
func TextPipe(s string) (field [PipeBytes]byte) {
	copy(field[:len(field)-1], s)
	return field
}

// WriteConfig creates a config page, or replaces one that no tenant uses. The
// header is filled in. The tenant may read it, never write.
func WriteConfig(path string, c Config, mode os.FileMode) error {
	c.Header = Header{Magic: ConfigMagic, Version: Version, Size: SizeOfConfig}
	return create(path, SizeOfConfig, mode, -1, func(file *os.File) error {
		if _, err := file.WriteAt(encode(&c), 0); err != nil {
			return fmt.Errorf("write config page: %w", err)
		}
		return nil
	})
}

// ReadConfig reads a config page that the caller alone writes.
func ReadConfig(path string) (Config, error) {
	file, err := open(path, os.O_RDONLY, ConfigMagic, SizeOfConfig)
	if err != nil {
		return Config{}, err
	}
	defer file.Close()
	c, err := readConfig(file)
	if err != nil {
		return Config{}, fmt.Errorf("%s: %w", path, err)
	}
	return c, nil
}

// ReadOpenConfig is [ReadConfig] of a file that the caller opened.
func ReadOpenConfig(file *os.File) (Config, error) {
	if err := check(file, ConfigMagic, SizeOfConfig); err != nil {
		return Config{}, err
	}
	return readConfig(file)
}

func readConfig(file *os.File) (Config, error) {
	var c Config
	if err := readAt(file, 0, SizeOfConfig, &c); err != nil {
		return Config{}, err
	}
	if c.DeviceCount < 1 || c.DeviceCount > Devices {
		return Config{}, fmt.Errorf("%w: %d GPUs, not 1 to %d", ErrCorrupt, c.DeviceCount, Devices)
	}
	return c, nil
}

// UpdateConfig changes a config page that tenants have mapped. A reader sees
// the old or the new page; a limit, which readers load without the seqlock,
// changes as one word.
func UpdateConfig(path string, change func(*Config)) error {
	c, err := ReadConfig(path)
	if err != nil {
		return err
	}
	before := c
	change(&c)
	c.Header, c.Sequence = before.Header, before.Sequence
	file, err := open(path, os.O_RDWR, ConfigMagic, SizeOfConfig)
	if err != nil {
		return err
	}
	defer file.Close()
	memory, err := unix.Mmap(int(file.Fd()), 0, SizeOfConfig, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return fmt.Errorf("map config page: %w", err)
	}
	return errors.Join(store(memory, encode(&before), encode(&c)), unix.Munmap(memory))
}

// store makes the sequence odd, writes the words that differ and makes it even.
// Under a user's own agent the tenant owns the file too and may truncate it while
// it is mapped: the fault then ends the change, not the agent.
func store(memory, before, after []byte) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if fault := recover(); fault != nil {
			err = fmt.Errorf("change config page: %w: %v", ErrCorrupt, fault)
		}
	}()
	sequence := (*uint32)(unsafe.Pointer(&memory[OffsetOfConfigSequence]))
	odd := atomic.LoadUint32(sequence) | 1 // an agent that died here left it odd
	atomic.StoreUint32(sequence, odd)
	for at := OffsetOfConfigSequence + 8; at+8 <= len(after); at += 8 {
		word := order.Uint64(after[at:])
		if word != order.Uint64(before[at:]) {
			atomic.StoreUint64((*uint64)(unsafe.Pointer(&memory[at])), word)
		}
	}
	atomic.StoreUint32(sequence, odd+1)
	return nil
}

// order is the byte order of pages, which are described for little-endian
// machines alone.
var order = binary.LittleEndian

func encode(v any) []byte {
	var out bytes.Buffer
	// Only a type without a fixed size could fail here, and pages have none.
	_ = binary.Write(&out, order, v)
	return out.Bytes()
}

// readAt fills v, which takes size bytes in the file.
func readAt(file *os.File, offset int64, size int, v any) error {
	data := make([]byte, size)
	if n, err := file.ReadAt(data, offset); err != nil {
		return fmt.Errorf("%w: %d of %d bytes can be read: %w", ErrCorrupt, n, size, err)
	}
	_, err := binary.Decode(data, order, v)
	return err
}
