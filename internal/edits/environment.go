package edits

import (
	"slices"
	"strings"
)

// defaultPath is where execvp(3) looks without a PATH: a folder put before it must not take these away.
const defaultPath = "/bin:/usr/bin"

// driverVariables are those of the documented ones of the driver's that say how it works. Those that name files are none of
// them: whoever starts a worker for another user would have it open what that user cannot.
var driverVariables = []string{
	"CUDA_AUTO_BOOST", "CUDA_BINARY_LOADER_THREAD_COUNT", "CUDA_DEVICE_DEFAULT_PERSISTING_L2_CACHE_PERCENTAGE_LIMIT",
	"CUDA_DEVICE_MAX_CONNECTIONS", "CUDA_DEVICE_MAX_COPY_CONNECTIONS", "CUDA_DEVICE_ORDER", "CUDA_DEVICE_WAITS_ON_EXCEPTION",
	"CUDA_DISABLE_JIT", "CUDA_DISABLE_PERF_BOOST", "CUDA_DISABLE_PTX_JIT", "CUDA_FORCE_JIT",
	"CUDA_FORCE_PTX_JIT", "CUDA_GRAPHS_USE_NODE_PRIORITY", "CUDA_LAUNCH_BLOCKING", "CUDA_MANAGED_FORCE_DEVICE_ALLOC",
	"CUDA_MODULE_DATA_LOADING", "CUDA_MODULE_LOADING", "CUDA_SCALE_LAUNCH_QUEUES", "CUDA_VISIBLE_DEVICES",
}

// mostOfVariable bounds each of them in bytes: the longest is a list of the UUIDs of all GPUs.
const mostOfVariable = 4096

// DriverVariables are the entries of env that a worker of another user than the command's takes from it.
func DriverVariables(env []string) (taken []string) {
	for _, entry := range env {
		name, _, ok := strings.Cut(entry, "=")
		again := slices.ContainsFunc(taken, func(before string) bool { return strings.HasPrefix(before, name+"=") })
		if ok && !again && slices.Contains(driverVariables, name) && len(entry) <= mostOfVariable && !strings.ContainsRune(entry, 0) {
			taken = append(taken, entry)
		}
	}
	return taken
}

// Environment returns env with the edits of variables applied. An edited variable
// appears once, in its first position in env, or at the end.
func (e Edits) Environment(env []string) []string {
	out := slices.Clone(env)
	for _, edit := range e.Env {
		out = edit.apply(out)
	}
	return out
}

func (e Env) apply(env []string) []string {
	named := func(entry string) bool { return strings.HasPrefix(entry, e.Name+"=") }
	at := slices.IndexFunc(env, named)
	if at < 0 {
		value := e.Value
		if e.Prepend && e.Name == "PATH" {
			value += ":" + defaultPath
		}
		return append(env, e.Name+"="+value)
	}
	// Of several entries with one name, getenv(3) returns the first.
	old := strings.TrimPrefix(env[at], e.Name+"=")
	value := e.Value
	if e.Prepend && old != "" {
		value += ":" + old
	}
	rest := slices.DeleteFunc(slices.Clone(env[at+1:]), named)
	return append(append(env[:at:at], e.Name+"="+value), rest...)
}
