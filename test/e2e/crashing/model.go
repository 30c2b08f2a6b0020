package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/divvy-gpu/divvy/internal/vm/vfio"
)

const (
	// modelVariable names the root of a host that is modelled: a folder with sys in it, as the kernel has it.
	modelVariable = "DIVVY_MODEL"
	// modelCommand has this program make the writes of [vfio.Host].
	modelCommand = "model-kernel"
)

// modelled is the host whose devices virtual machines get, nil where none is modelled.
func modelled() (*vfio.Host, error) {
	root := os.Getenv(modelVariable)
	if root == "" {
		return nil, nil
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	return &vfio.Host{Root: root, Program: self, Args: []string{modelCommand}}, nil
}

// kernel does with the files of a modelled host what the kernel does for a write, and answers each in a line. No driver is
// loaded and no device bound.
func kernel(root string, in io.Reader, out io.Writer) error {
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		var write struct{ Path, Value, Leave, Take string }
		if err := json.Unmarshal(lines.Bytes(), &write); err != nil {
			return err
		}
		var answer struct {
			Number unix.Errno `json:"number,omitempty"`
			Text   string     `json:"text,omitempty"`
		}
		err := (model{filepath.Join(root, "sys")}).write(write.Path, strings.TrimSuffix(write.Value, "\n"))
		if err == nil {
			err = receipts(write.Leave, write.Take)
		}
		if err != nil && !errors.As(err, &answer.Number) {
			answer.Text = err.Error()
		}
		if err := json.NewEncoder(out).Encode(answer); err != nil {
			return err
		}
	}
	return lines.Err()
}

// receipts leaves the receipt of a write that was made, or takes one away.
func receipts(leave, take string) error {
	if leave != "" {
		return os.WriteFile(leave, nil, 0o600)
	}
	if take != "" {
		return os.Remove(take)
	}
	return nil
}

// model is a modelled host, by its sys.
type model struct{ sys string }

func (m model) write(path, value string) error {
	parts := strings.Split(path, "/")
	switch {
	case path == "bus/pci/drivers_probe":
		return m.probe(value)
	case len(parts) == 5 && strings.HasPrefix(path, "bus/pci/drivers/") && parts[4] == "unbind":
		return m.unbind(value, parts[3])
	case len(parts) == 5 && strings.HasPrefix(path, "bus/pci/drivers/") && parts[4] == "bind":
		return m.bind(value, parts[3])
	case len(parts) == 5 && strings.HasPrefix(path, "bus/pci/devices/") && parts[4] == "reset":
		return m.reset(parts[3])
	case len(parts) == 5 && strings.HasPrefix(path, "bus/pci/devices/") && parts[4] == "driver_override":
		if value == "" {
			value = "(null)"
		}
		return m.set(parts[3], parts[4], value)
	}
	return m.divide(path, value)
}

// device is a file of a function's folder.
func (m model) device(address, file string) string {
	return filepath.Join(m.sys, "bus/pci/devices", address, file)
}

// line is what such a file has, "" for nothing.
func (m model) line(address, file string) string {
	text, _ := os.ReadFile(m.device(address, file))
	return strings.TrimSuffix(strings.TrimSpace(string(text)), "(null)")
}

func (m model) set(address, file, value string) error {
	return os.WriteFile(m.device(address, file), []byte(value+"\n"), 0o600)
}

// reset adds a line to the file resets.
func (m model) reset(address string) error {
	file, err := os.OpenFile(m.device(address, "resets"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = file.WriteString("reset\n")
	return errors.Join(err, file.Close())
}

func (m model) unbind(address, driver string) error {
	if has, _ := os.Readlink(m.device(address, "driver")); filepath.Base(has) != driver {
		return unix.ENODEV
	}
	return os.Remove(m.device(address, "driver"))
}

// bind has a driver take a function that it knows: by driver_override, or by itself, which the file home says.
func (m model) bind(address, driver string) error {
	wanted := m.line(address, "driver_override")
	if wanted == "" {
		wanted = m.line(address, "home")
	}
	if wanted != driver {
		return unix.ENODEV
	}
	return os.Symlink("/sys/bus/pci/drivers/"+driver, m.device(address, "driver"))
}

func (m model) probe(address string) error {
	if _, err := os.Readlink(m.device(address, "driver")); err == nil {
		return nil
	}
	driver := m.line(address, "driver_override")
	if driver == "" {
		driver = m.line(address, "home")
	}
	return m.bind(address, driver)
}
