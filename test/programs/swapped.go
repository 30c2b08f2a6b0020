package programs

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// Swapper is a program that must run right while its memory leaves the GPU.
type Swapper struct {
	Name  string
	check func(ctx context.Context, s *swapping, lose func() error) error
}

// Swappers are these programs.
func Swappers() []Swapper {
	all := []Swapper{{Name: video.Name, check: swapVideo}}
	for _, c := range calculators {
		all = append(all, Swapper{Name: c.Name, check: c.swap})
	}
	return all
}

// Check runs the program and takes its memory from the GPU while it waits: by the turns of an agent, or after the agent's
// death, when everybody works at once and the driver alone evicts. It returns everything that was not right.
func (w Swapper) Check(ctx context.Context, setting Setting, ruled bool) (err error) {
	ctx, cancel := context.WithTimeout(ctx, longest)
	defer cancel()
	s, err := setting.openSwap(ctx)
	if err != nil {
		return fmt.Errorf("start a machine on which memory leaves the GPU: %w", err)
	}
	defer func() { err = errors.Join(err, s.close(ctx)) }()
	err = w.check(ctx, s, func() error {
		if !ruled {
			if err := s.agent.cmd.Process.Signal(syscall.SIGKILL); err != nil {
				return fmt.Errorf("kill the agent: %w", err)
			}
			_ = s.agent.wait() // it was killed
			s.agent = nil
		}
		return nil
	})
	return errors.Join(err, s.end(), s.settled(ctx))
}

// swap runs a script that holds ballast, waits until that has left the GPU, and compares what the script says then.
func (c calculator) swap(ctx context.Context, s *swapping, lose func() error) error {
	var environment []string
	if c.environment != nil {
		environment = c.environment(s.place)
	}
	argv := s.python(c.modules, s.script(c.script), strconv.Itoa(swapLimit), strconv.Itoa(ballast))
	cmd := s.swapCommand(ctx, swapLimit, append(append([]string{"env"}, environment...), argv...)...)
	input, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	script, err := start(ctx, cmd, "held")
	if err != nil {
		return err
	}
	err = errors.Join(lose(), s.lost(ctx, ballast-besideIt), input.Close(), script.wait())
	if err != nil {
		return err
	}
	var told calculated
	if err := json.Unmarshal([]byte(script.out.last()), &told); err != nil {
		return fmt.Errorf("read %q: %w", script.out.all(), err)
	}
	if !told.Held {
		err = errors.New("the memory that left the GPU is not as it was")
	}
	moved, unread := s.moved(ctx)
	if got := int(moved.busy / kernelTime); got != told.Launched {
		err = errors.Join(err, fmt.Errorf("the GPU has executed %d of its kernels, want %d", got, told.Launched))
	}
	if moved.in < ballast-besideIt {
		err = errors.Join(err, fmt.Errorf("%d bytes of its memory came back, want at least %d", moved.in, ballast-besideIt))
	}
	return errors.Join(err, unread, c.compare(s.place, told))
}

// A frame of the video whose memory leaves the GPU has some 50 MB.
const (
	wide, high = 7680, 4320
	frameBytes = wide * high * 3 / 2
	swapFrames = 4
)

// swapVideo gives ffmpeg a frame, waits until the memory in which it went through the GPU has left that, and gives it the rest.
func swapVideo(ctx context.Context, s *swapping, lose func() error) error {
	movie := make([]byte, frameBytes*swapFrames)
	_, _ = rand.NewChaCha8([32]byte{1}).Read(movie) // it never fails
	want, err := onlyFrames(output(withInput(s.outside(ctx, piped(onCPU)...), movie)))
	if err != nil || len(want) != swapFrames {
		return fmt.Errorf("frames on the processor: %d, want %d: %w", len(want), swapFrames, err)
	}
	cmd := s.swapCommand(ctx, swapLimit, piped(throughIt)...)
	input, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	var said, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &errs
	if err := cmd.Start(); err != nil {
		return err
	}
	feed := func(frames []byte) error {
		_, err := io.Copy(input, bytes.NewReader(frames))
		return err
	}
	// Two frames: it goes on with one when it sees the next.
	err = errors.Join(feed(movie[:2*frameBytes]), lose(), s.lost(ctx, frameBytes-besideIt), feed(movie[2*frameBytes:]), input.Close())
	if err = errors.Join(err, cmd.Wait()); err != nil {
		return fmt.Errorf("%w: %s", err, &errs)
	}
	got, err := onlyFrames(said.String(), nil)
	if err == nil && !slices.Equal(got, want) {
		err = errors.New("frames that went through a GPU whose memory was away differ")
	}
	return err
}

func withInput(cmd *exec.Cmd, input []byte) *exec.Cmd {
	cmd.Stdin = bytes.NewReader(input)
	return cmd
}

// piped is the command of an ffmpeg that reads frames, puts them through a filter, and prints the MD5 of each.
func piped(filter string) []string {
	return []string{
		"ffmpeg", "-nostdin", "-loglevel", "error", "-init_hw_device", "cuda=gpu:0", "-filter_hw_device", "gpu",
		"-probesize", "32", "-analyzeduration", "0", "-f", "rawvideo", "-pixel_format", "yuv420p", "-video_size", fmt.Sprintf("%dx%d", wide, high), "-i", "pipe:0",
		"-vf", filter, "-f", "framemd5", "-flush_packets", "1", "-",
	}
}

// onlyFrames are the lines of frames in what ffmpeg prints.
func onlyFrames(text string, err error) ([]string, error) {
	if err != nil {
		return nil, err
	}
	return slices.Collect(func(yield func(string) bool) {
		for line := range strings.Lines(text) {
			if !strings.HasPrefix(line, "#") && !yield(line) { // a line that begins otherwise names the program's version
				return
			}
		}
	}), nil
}
