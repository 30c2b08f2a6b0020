package main

import (
	"bytes"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math/rand/v2"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/divvy-gpu/divvy/test/bench/measurement"
)

const (
	onID     = "remote.on_ms"
	onStream = 1 << 30
)

// ons measures commands that run on the other host.
func (b *bench) ons() (rows []measurement.Row, err error) {
	h, err := b.serve()
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, h.close()) }()
	began, err := b.often(31, h.begins)
	if err != nil {
		return nil, err
	}
	first := row(onID, "TLS, to the command's first instruction", "ms", 300, measurement.Lower, began)
	first.Note = "Until `date` has told the time."
	var lost []float64
	var speed []float64
	for range b.times(3) {
		gone, rate, err := h.streams()
		if err != nil {
			return nil, err
		}
		lost, speed = append(lost, float64(gone)), append(speed, rate)
	}
	through := row(onID, "TLS, lost of 1 GiB through standard input and output", "bytes", 0, measurement.Lower, lost)
	through.Note = fmt.Sprintf("Through `cat`, %.0f MB/s. Bytes that came changed or at another place are lost.", middle(speed))
	differ, tried, err := h.endings()
	if err != nil {
		return nil, err
	}
	ends := row(onID, "TLS, signals and exit statuses that differ", "", 0, measurement.Lower, []float64{float64(differ)})
	ends.Note = fmt.Sprintf("Of %d that are compared with the same command here.", tried)
	return []measurement.Row{first, through, ends}, b.Alone()
}

// on is a command on the other host.
func (h *host) on(command ...string) *exec.Cmd {
	return exec.CommandContext(h.Context(), h.Divvy, append([]string{"run", "--on", near, "--memory", "1Gi", "--"}, command...)...)
}

// begins is how long a command takes to its first instruction.
func (h *host) begins() (time.Duration, error) {
	begin := time.Now()
	text, err := h.on("date", "+%s%N").Output()
	if err != nil {
		return 0, fmt.Errorf("run a command on the other host: %w", err)
	}
	ns, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("read when the command began: %w", err)
	}
	return time.Unix(0, ns).Sub(begin), h.Alone()
}

// streams passes drawn bytes through a command, and counts those that do not come back as they were. The rate is in MB/s.
func (h *host) streams() (lost int64, rate float64, err error) {
	size := int64(onStream)
	if h.quick {
		size /= 16
	}
	block := make([]byte, 1<<20)
	generator := rand.NewChaCha8([32]byte{1})
	_, _ = generator.Read(block) // it never fails
	cat := h.on("cat")
	in, err := cat.StdinPipe()
	if err != nil {
		return 0, 0, err
	}
	out, err := cat.StdoutPipe()
	if err != nil {
		return 0, 0, err
	}
	var said bytes.Buffer
	cat.Stderr = &said
	begin := time.Now()
	if err := cat.Start(); err != nil {
		return 0, 0, fmt.Errorf("run cat on the other host: %w", err)
	}
	go func() {
		for left := size; left > 0; left -= int64(len(block)) {
			if _, err := in.Write(block); err != nil {
				break // what does not come back is counted
			}
		}
		_ = in.Close()
	}()
	want, got := crc32.ChecksumIEEE(block), make([]byte, len(block))
	for left := size; left > 0; left -= int64(len(block)) {
		if n, err := io.ReadFull(out, got); err != nil || crc32.ChecksumIEEE(got) != want {
			lost += int64(len(block) - n)
			if err == nil {
				lost += int64(len(block))
			}
		}
	}
	more, _ := io.Copy(io.Discard, out)
	err = cat.Wait()
	rate = float64(size) / time.Since(begin).Seconds() / 1e6
	if err != nil {
		return 0, 0, fmt.Errorf("run cat on the other host: %w: %s", err, said.String())
	}
	return lost + more, rate, h.Alone()
}

// endings compares how commands end there with how they end here.
func (h *host) endings() (differ, tried int, err error) {
	signals := []syscall.Signal{syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM, syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGALRM, syscall.SIGKILL, syscall.SIGSEGV}
	var commands [][]string
	for _, status := range []int{0, 1, 2, 42, 124, 125, 126, 127, 128, 137, 255} {
		commands = append(commands, []string{"sh", "-c", fmt.Sprintf("exit %d", status)})
	}
	for _, signal := range signals {
		commands = append(commands, []string{"sh", "-c", fmt.Sprintf("ulimit -c 0; kill -%d $$", signal)})
	}
	for _, command := range commands {
		here, there := ending(exec.Command(command[0], command[1:]...)), ending(h.on(command...))
		if tried++; here != there {
			differ++
		}
	}
	// From outside: the signal of the one is that of the other, and a handler runs there too.
	for _, signal := range signals[:7] {
		const traps = `ulimit -c 0; trap 'exit 9' USR2; echo there; while :; do sleep 0.01; done`
		var ends [2]string
		for i, command := range []*exec.Cmd{exec.Command("sh", "-c", traps), h.on("sh", "-c", traps)} {
			if ends[i], err = signalled(command, signal); err != nil {
				return 0, 0, err
			}
		}
		if tried++; ends[0] != ends[1] {
			differ++
		}
	}
	return differ, tried, h.Alone()
}

// ending is how a command ends.
func ending(command *exec.Cmd) string {
	_ = command.Run() // that is what it tells
	return command.ProcessState.String()
}

// signalled is how a command ends that gets a signal once it has said something.
func signalled(command *exec.Cmd, signal syscall.Signal) (string, error) {
	out, err := command.StdoutPipe()
	if err != nil {
		return "", err
	}
	if err := command.Start(); err != nil {
		return "", fmt.Errorf("start a command that gets a signal: %w", err)
	}
	late := time.AfterFunc(longest, func() { _ = command.Process.Kill() })
	defer late.Stop()
	_, err = io.ReadFull(out, make([]byte, len("there\n")))
	_ = command.Process.Signal(signal) // it may have ended, which its status tells
	_ = command.Wait()                 // and how it ended, too
	return command.ProcessState.String(), err
}
