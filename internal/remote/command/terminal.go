package command

import (
	"fmt"
	"os"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/divvy-gpu/divvy/internal/remote/wire"
)

// openTerminal makes a terminal: ours is where the person sits, theirs is the command's.
func openTerminal(size wire.Window) (ours, theirs *os.File, err error) {
	fd, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("make a terminal: %w", err)
	}
	ours = os.NewFile(uintptr(fd), "ptmx")
	number, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0)
	}
	if err == nil {
		err = resize(ours, size)
	}
	if err == nil {
		theirs, err = os.OpenFile("/dev/pts/"+strconv.Itoa(number), os.O_RDWR|unix.O_NOCTTY, 0)
	}
	if err != nil {
		ours.Close()
		return nil, nil, fmt.Errorf("make a terminal: %w", err)
	}
	return ours, theirs, nil
}

// resize gives a terminal a size. Its programs get SIGWINCH from the kernel.
func resize(terminal *os.File, w wire.Window) error {
	raw, err := terminal.SyscallConn()
	if err != nil {
		return fmt.Errorf("resize the terminal: %w", err)
	}
	var failed error
	err = raw.Control(func(fd uintptr) {
		failed = unix.IoctlSetWinsize(int(fd), unix.TIOCSWINSZ, &unix.Winsize{Row: w.Rows, Col: w.Columns, Xpixel: w.Width, Ypixel: w.Height})
	})
	if err == nil {
		err = failed
	}
	if err != nil {
		return fmt.Errorf("resize the terminal: %w", err)
	}
	return nil
}

// screen is the client's terminal.
type screen struct {
	fd     int
	before unix.Termios
}

// openScreen returns the terminal of a stream, nil where it is none.
func openScreen(fd int) *screen {
	before, err := unix.IoctlGetTermios(fd, unix.TCGETS)
	if err != nil {
		return nil
	}
	return &screen{fd: fd, before: *before}
}

// raw has the terminal pass on what is typed, as cfmakeraw of termios(3) does: the other host's terminal does the rest.
func (s *screen) raw() error {
	t := s.before
	t.Iflag &^= unix.IGNBRK | unix.BRKINT | unix.PARMRK | unix.ISTRIP | unix.INLCR | unix.IGNCR | unix.ICRNL | unix.IXON
	t.Oflag &^= unix.OPOST
	t.Lflag &^= unix.ECHO | unix.ECHONL | unix.ICANON | unix.ISIG | unix.IEXTEN
	t.Cflag &^= unix.CSIZE | unix.PARENB
	t.Cflag |= unix.CS8
	t.Cc[unix.VMIN], t.Cc[unix.VTIME] = 1, 0
	if err := unix.IoctlSetTermios(s.fd, unix.TCSETSW, &t); err != nil {
		return fmt.Errorf("set up the terminal: %w", err)
	}
	return nil
}

// restore has the terminal be as it was before.
func (s *screen) restore() {
	_ = unix.IoctlSetTermios(s.fd, unix.TCSETSW, &s.before) // a terminal that is gone needs none
}

// window is the terminal's size.
func (s *screen) window() wire.Window {
	size, err := unix.IoctlGetWinsize(s.fd, unix.TIOCGWINSZ)
	if err != nil {
		return wire.Window{}
	}
	return wire.Window{Rows: size.Row, Columns: size.Col, Width: size.Xpixel, Height: size.Ypixel}
}

// again is another descriptor of a file, of which each is closed by itself.
func again(file *os.File) (*os.File, error) {
	fd, err := syscall.Dup(int(file.Fd()))
	if err != nil {
		return nil, fmt.Errorf("use the terminal: %w", err)
	}
	syscall.CloseOnExec(fd)
	return os.NewFile(uintptr(fd), file.Name()), nil
}

// drain reads a terminal until it ends.
func drain(terminal *os.File) {
	piece := make([]byte, 4096)
	for {
		if _, err := terminal.Read(piece); err != nil {
			return
		}
	}
}
