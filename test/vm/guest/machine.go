package guest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// User is the plain user of the guest, as whom VMs run.
const User = 1000

// Memory of a VM within the guest, in MiB.
const Memory = 64

// VM is a QEMU inside the guest that runs nothing: its processor is stopped. It answers what it has.
type VM struct {
	cmd    *exec.Cmd
	input  io.WriteCloser
	output *json.Decoder
	faults *bytes.Buffer
	once   sync.Once
}

// Device is what a VM has on its PCI bus.
type Device struct {
	// Name is the id that the device got on the command line.
	Name string `json:"qdev_id"`
	ID   struct {
		Vendor, Device, Subsystem int
	} `json:"id"`
}

// limits is held while this process's own limit on locked memory stands for that of a VM which is being started.
var limits sync.Mutex

// StartVM starts a VM as the plain user, who may lock some bytes of memory, with devices as QEMU's -device has them. It
// returns an error with what QEMU said where QEMU does not run. The VM ends with the test.
func StartVM(t testing.TB, locked uint64, devices ...string) (*VM, error) {
	t.Helper()
	arguments := []string{
		"-M", "q35", "-accel", "tcg", "-m", fmt.Sprint(Memory), "-nodefaults", "-no-user-config", "-display", "none", "-S",
		"-qmp", "stdio",
	}
	for _, device := range devices {
		arguments = append(arguments, "-device", device)
	}
	return StartQEMU(t, locked, arguments...)
}

// StartQEMU is StartVM with all arguments of QEMU, which must have it speak QMP on its standard input and output.
func StartQEMU(t testing.TB, locked uint64, arguments ...string) (*VM, error) {
	t.Helper()
	vm := &VM{cmd: exec.Command("qemu-system-x86_64", arguments...), faults: &bytes.Buffer{}} //nolint:gosec,noctx // it ends with the test
	vm.cmd.Stderr = vm.faults
	vm.cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: User, Gid: User}}
	var err error
	if vm.input, err = vm.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	output, err := vm.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	vm.output = json.NewDecoder(output)
	if err := vm.start(locked); err != nil {
		return nil, err
	}
	t.Cleanup(vm.Stop)
	var greeting struct{ QMP json.RawMessage }
	if err := vm.output.Decode(&greeting); err != nil {
		vm.Stop()
		return nil, fmt.Errorf("start a VM: %w: %s", err, vm.faults)
	}
	return vm, vm.ask("qmp_capabilities", nil)
}

// start starts QEMU with a limit on locked memory, which a child has from its parent.
func (vm *VM) start(locked uint64) error {
	limits.Lock()
	defer limits.Unlock()
	var before unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_MEMLOCK, &before); err != nil {
		return fmt.Errorf("read the limit on locked memory: %w", err)
	}
	if err := unix.Setrlimit(unix.RLIMIT_MEMLOCK, &unix.Rlimit{Cur: locked, Max: max(locked, before.Max)}); err != nil {
		return fmt.Errorf("set the limit on locked memory: %w", err)
	}
	err := vm.cmd.Start()
	return errors.Join(err, unix.Setrlimit(unix.RLIMIT_MEMLOCK, &before))
}

// Stop ends the VM, and waits until it has let go of its devices.
func (vm *VM) Stop() {
	vm.once.Do(func() {
		_ = vm.cmd.Process.Kill()
		_ = vm.cmd.Wait()
	})
}

// Pid returns the process of the VM.
func (vm *VM) Pid() int {
	return vm.cmd.Process.Pid
}

// ask sends a command and decodes its answer.
func (vm *VM) ask(command string, answer any) error {
	return vm.send(fmt.Sprintf("{\"execute\":%q}", command), answer)
}

func (vm *VM) send(command string, answer any) error {
	if _, err := fmt.Fprintln(vm.input, command); err != nil {
		return fmt.Errorf("ask a VM: %w: %s", err, vm.faults)
	}
	for {
		var got struct {
			Return json.RawMessage
			Error  *struct{ Desc string }
		}
		if err := vm.output.Decode(&got); err != nil {
			return fmt.Errorf("ask a VM: %w: %s", err, vm.faults)
		}
		switch {
		case got.Error != nil:
			return fmt.Errorf("ask a VM: it refuses %s: %s", command, got.Error.Desc)
		case got.Return == nil: // an event
		case answer == nil:
			return nil
		default:
			return json.Unmarshal(got.Return, answer)
		}
	}
}

// Tree returns the VM's devices with their properties as QEMU shows them to people, also those behind ports that no firmware
// has set up.
func (vm *VM) Tree() (string, error) {
	var text string
	err := vm.send(`{"execute":"human-monitor-command","arguments":{"command-line":"info qtree"}}`, &text)
	return text, err
}

// Devices returns what the VM has on its first PCI bus.
func (vm *VM) Devices() ([]Device, error) {
	var buses []struct{ Devices []Device }
	if err := vm.ask("query-pci", &buses); err != nil {
		return nil, err
	}
	if len(buses) == 0 {
		return nil, errors.New("ask a VM: it has no PCI bus")
	}
	return buses[0].Devices, nil
}

// OpenGroup gives the plain user the node of a group, and that of VFIO itself.
func OpenGroup(group string) error {
	if err := unix.Chmod("/dev/vfio/vfio", 0o666); err != nil {
		return fmt.Errorf("open VFIO for everybody: %w", err)
	}
	if err := unix.Chown("/dev/vfio/"+group, User, User); err != nil {
		return fmt.Errorf("give away the group %s: %w", group, err)
	}
	return nil
}
