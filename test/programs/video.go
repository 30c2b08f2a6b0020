package programs

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"
)

// video is Debian's ffmpeg. It makes a context of its own, copies each frame to the GPU and back, and scales frames
// there with a kernel that it carries as PTX.
var video = Program{Name: "ffmpeg", machine: "a100-80g", limit: 520 << 20, check: checkVideo}

const (
	small     = "1280x720"
	large     = "15360x8640" // a frame has 199 MB, and less is left beside a context
	framesOf  = 25
	onCPU     = "format=yuv420p"
	throughIt = "format=yuv420p,hwupload_cuda,hwdownload,format=yuv420p"
	scaledOn  = "format=yuv420p,hwupload_cuda,scale_cuda=640:360,hwdownload,format=yuv420p"
)

func checkVideo(ctx context.Context, p *place) error {
	want, err := frames(p.outside, ctx, small, onCPU)
	if err != nil || len(want) != framesOf {
		return fmt.Errorf("frames on the processor: %d, want %d: %w", len(want), framesOf, err)
	}
	got, err := frames(p.command, ctx, small, throughIt)
	if err == nil && !slices.Equal(got, want) {
		err = errors.New("frames that went through the GPU differ")
	}
	scaled, failed := frames(p.command, ctx, small, scaledOn)
	// 640 times 360 pixels of twelve bits.
	if failed == nil && (len(scaled) != framesOf || !strings.Contains(scaled[0], " 345600, ")) {
		failed = fmt.Errorf("%d frames are scaled, want %d of 345600 bytes: %.1q", len(scaled), framesOf, scaled)
	}
	report, unread := p.report(ctx)
	if unread != nil {
		return unread
	}
	// Two kernels scale a frame: of its brightness, and of its colours.
	err = errors.Join(err, failed, launched(report, 2*framesOf))
	if p.isNative() {
		return err
	}
	return errors.Join(err, refusedVideo(ctx, p))
}

// refusedVideo has ffmpeg take a frame that does not fit.
func refusedVideo(ctx context.Context, p *place) error {
	_, err := frames(p.command, ctx, large, throughIt)
	var exit *exec.ExitError
	if !errors.As(err, &exit) || !exit.Exited() || !strings.Contains(err.Error(), "CUDA_ERROR_OUT_OF_MEMORY") {
		return errors.Join(errors.New("past its limit ffmpeg does not end by itself and say that memory ran out"), err)
	}
	return nil
}

// frames runs ffmpeg with a filter on a moving test picture and returns a line with the MD5 of each frame.
func frames(run func(context.Context, ...string) *exec.Cmd, ctx context.Context, size, filter string) ([]string, error) {
	return onlyFrames(output(run(ctx, "ffmpeg", "-nostdin", "-loglevel", "error",
		"-init_hw_device", "cuda=gpu:0", "-filter_hw_device", "gpu",
		"-f", "lavfi", "-i", fmt.Sprintf("testsrc2=size=%s:rate=%d:duration=1", size, framesOf),
		"-vf", filter, "-f", "framemd5", "-")))
}
