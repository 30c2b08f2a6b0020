package launch

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"syscall"
)

// ErrRelay is returned where the relay of a share on another host does not start.
var ErrRelay = errors.New("the relay to other hosts did not start")

// RelayCommand is the argument with which divvy becomes a relay.
const RelayCommand = "relay"

// The descriptors of a relay: its life, where it answers, what it is to do, and the lock that it holds while it lives.
const (
	RelayLife = 3 + iota
	RelayAnswers
	RelaySpec
	RelayLock
)

// Relay starts a relay, by the program divvy, as [Enter.Work] starts a worker: it is no child of this process and has no
// terminal. It ends with its life. What it answers is read from the file, which the caller closes.
func (e Enter) Relay(divvy string, env []string, spec any, lock *os.File) (Life, *os.File, error) {
	text, err := json.Marshal(spec)
	if err != nil {
		return Life{}, nil, fmt.Errorf("%w: %w", ErrRelay, err)
	}
	var pipes [3][2]*os.File
	for i := range pipes {
		if pipes[i][0], pipes[i][1], err = os.Pipe(); err != nil {
			return Life{}, nil, errors.Join(fmt.Errorf("%w: %w", ErrRelay, err), closeAll(pipes[:i]))
		}
	}
	life, answers, told := pipes[0], pipes[1], pipes[2]
	cmd := &exec.Cmd{
		Path: string(e), Args: []string{string(e), "--detach", "--", divvy, RelayCommand}, Env: slices.DeleteFunc(slices.Clone(env), leads), Stderr: os.Stderr,
		ExtraFiles: []*os.File{life[0], answers[1], told[0], lock}, SysProcAttr: &syscall.SysProcAttr{Setsid: true},
	}
	err = errors.Join(cmd.Run(), life[0].Close(), answers[1].Close(), told[0].Close())
	if err == nil {
		_, err = told[1].Write(text) // what it does not take, it does not need
	}
	if err = errors.Join(err, told[1].Close()); err != nil && !errors.Is(err, syscall.EPIPE) {
		return Life{}, nil, errors.Join(fmt.Errorf("%w: %w", ErrRelay, err), life[1].Close(), answers[0].Close())
	}
	return Life{life[1]}, answers[0], nil
}

func closeAll(pipes [][2]*os.File) error {
	var faults []error
	for _, p := range pipes {
		faults = append(faults, p[0].Close(), p[1].Close())
	}
	return errors.Join(faults...)
}
