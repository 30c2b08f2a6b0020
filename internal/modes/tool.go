package modes

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// ToolProgram sets the length of time slices. It comes with the driver and has to be of its version.
const ToolProgram = "nvidia-smi"

// ErrTool says that the driver's tool is missing, or does not do what it is asked.
var ErrTool = errors.New("the driver's nvidia-smi sets no time slices")

// toolTime bounds one call of the tool, which may have to wake the GPU.
const toolTime = 10 * time.Second

// Tool is the driver's nvidia-smi.
type Tool struct {
	// Folders are where it is looked for, in order: the caller's PATH is not asked, which may be a user's.
	Folders []string
	// Environment is added to the tool's, such as what leads it to a simulated machine.
	Environment []string
	// Longest bounds one call; 0 stands for the usual bound.
	Longest time.Duration
}

// Find returns the tool's path.
func (t Tool) Find() (string, error) {
	for _, folder := range t.Folders {
		path := filepath.Join(folder, ToolProgram)
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() && info.Mode().Perm()&0o111 != 0 {
			return path, nil
		}
	}
	return "", fmt.Errorf("%w: there is none in %s: install the driver's package that has it, such as nvidia-utils", ErrTool, strings.Join(t.Folders, ", "))
}

// setSlice gives a GPU time slices of a length.
func (t Tool) setSlice(ctx context.Context, gpu, length string) error {
	number := slices.Index(Slices, length)
	if number < 0 {
		return fmt.Errorf("time slice %q: use %s", length, strings.Join(Slices, ", "))
	}
	_, err := t.run(ctx, "compute-policy", "-i", gpu, "--set-timeslice="+strconv.Itoa(number))
	return err
}

// listed is the line of the tool's table with a GPU's time slices.
var listed = regexp.MustCompile(`(?m)^\|\s+\d+\s+Timeslice\s+(\w+)\s*\|`)

// slice is the length of a GPU's time slices. What the tool tells otherwise than is known, or not at all, is [ErrUnknown].
func (t Tool) slice(ctx context.Context, gpu string) (string, error) {
	out, err := t.run(ctx, "compute-policy", "-i", gpu, "--list")
	if err != nil {
		return "", err
	}
	rows := listed.FindAllStringSubmatch(out, -1)
	if len(rows) != 1 || !slices.Contains(Slices, strings.ToLower(rows[0][1])) {
		return "", ErrUnknown
	}
	return strings.ToLower(rows[0][1]), nil
}

// run runs the tool and returns what it printed.
func (t Tool) run(ctx context.Context, args ...string) (string, error) {
	path, err := t.Find()
	if err != nil {
		return "", err
	}
	longest := t.Longest
	if longest == 0 {
		longest = toolTime
	}
	ctx, cancel := context.WithTimeout(ctx, longest)
	defer cancel()
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Env = append([]string{"PATH=/usr/bin:/bin", "LC_ALL=C"}, t.Environment...)
	cmd.WaitDelay = time.Second // a process in the driver may outlive its kill
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err = cmd.Run()
	said := said(out.Bytes())
	switch {
	case ctx.Err() != nil:
		return "", fmt.Errorf("%w: %s %s did not end within %s: %w", ErrTool, path, args[0], longest, ctx.Err())
	case err != nil && strings.Contains(said, "version mismatch"):
		return "", fmt.Errorf("%w: %s is of another version than the driver (%s): install the one of the driver's version, or restart the machine after an update", ErrTool, path, said)
	case err != nil:
		return "", fmt.Errorf("%w: %s %s: %w: %s", ErrTool, path, strings.Join(args, " "), err, said)
	}
	return out.String(), nil
}

// said is the first lines of what the tool printed, in one.
func said(out []byte) string {
	const most = 300
	text := strings.Join(strings.Fields(string(out[:min(len(out), most)])), " ")
	if text == "" {
		return "it says nothing"
	}
	return text
}

// programFolders are where drivers have their programs, below the root of the machine's files.
var programFolders = []string{
	"/usr/bin", "/usr/local/bin", "/opt/bin", "/usr/local/nvidia/bin", "/home/kubernetes/bin/nvidia/bin", "/run/current-system/sw/bin", "/usr/lib/wsl/lib",
}

// ToolFolders are where the tool may be of the driver whose library is in a folder: beside that first, then where systems
// have the drivers' programs. Root is where the machine's files are, empty for /.
func ToolFolders(root, library string) []string {
	folders := []string{library, filepath.Join(filepath.Dir(library), "bin")}
	for _, folder := range programFolders {
		folders = append(folders, filepath.Join("/", root, folder))
	}
	return folders
}
