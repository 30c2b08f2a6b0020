package agentconfig

import (
	"fmt"
	"slices"
	"strings"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
)

// Field is what a manual says of a field.
type Field struct {
	// Path has NAME for the name of a user or group, BACKEND for that of a backend, and FORM for that of a
	// form for virtual machines.
	Path, Type string
	// Default is what counts where the file does not say; empty where nothing does.
	Default string
	// Bounds are the values that are taken, empty for all of the type.
	Bounds string
	// Meaning is in Markdown, without a full stop.
	Meaning string
}

// The types of fields.
const (
	typeWord     = "word"
	typeNumber   = "whole number"
	typeMemory   = "amount"
	typeTime     = "time"
	typeYesNo    = "true or false"
	typeNames    = "list of names"
	typeTheLimit = "limits"
)

// Fields are those of a file, in the order of a manual.
func Fields() []Field {
	return slices.Concat([]Field{
		{"apiVersion", typeWord, "", v1alpha1.APIVersion, "version of the file, never left out"},
		{"kind", typeWord, "", Kind, "kind of the file, never left out"},
		{"outside", typeWord, string(OutsideReport), words(OutsideReport, OutsideStop, OutsideKill), "what is done about a share that takes more of a GPU than it was granted, and about processes of listed users without a share: shown, stopped (SIGSTOP) or killed (SIGKILL)"},
		{"defaultMemory", typeMemory, "100%", "above a program's context, at most a GPU's memory", "what a request that names no memory gets of each GPU, within its user's limit"},
		{"swapMemory", typeMemory, "", "bytes", "how much host memory swap shares and suspended shares may have together. Without it there are none ([oversubscription.md](../oversubscription.md))"},
		{"turnMemory", typeMemory, "50%", "less than a GPU's memory, or `none`", "how much of each GPU's memory a node of a cluster keeps for the turns of swap shares, which is the most that one of them can have. With `none` there are no such shares, and all of each GPU is for others, which can be suspended ([kubernetes.md](../kubernetes.md#more-memory-than-the-gpu-has))"},
		{"overcommit.users", typeNames, "", "", "users who may let the shares of a GPU add up to more than it has, beside root"},
		{"overcommit.groups", typeNames, "", "", "groups whose users may"},
		{"idle.after", typeTime, "", "from " + Duration(leastIdle), "for how long a share uses no GPU time until it is idle. Without `idle` none is"},
		{"idle.action", typeWord, string(IdleReport), words(IdleReport, IdleEnd), "what is done about an idle share: shown, or ended as with `divvy stop`"},
	}, backendFields(), []Field{
		{"metrics.address", "address and port", "", "an address of the machine, `:PORT` for every one, or " + word(NoMetrics), "where Prometheus reads"},
		{"metrics.dcgm", typeYesNo, "false", "", "tells of GPUs under the names of DCGM's exporter too, where that does not run"},
		{"history.record", typeYesNo, "true", "", "whether what shares did is kept"},
		{"history.days", typeNumber, "", fmt.Sprintf("1 to %d", mostDays), "for how many days"},
		{"history.size", typeMemory, "", "from " + v1alpha1.FormatBytes(leastOfDays), "in how many bytes at most"},
		{"history.commands", typeWord, string(CommandsWhole), words(CommandsWhole, CommandsProgram, CommandsNone), "what of a share's command line is kept: its beginning, its program's name, or nothing"},
		{"web.enabled", typeYesNo, "true", "", "whether the web page is served, beside metrics"},
		{"web.hosts", typeNames, "", fmt.Sprintf("of %d letters at most", longestHost), "names by which browsers and scrapers may ask, beside those of the machine for itself"},
		{"nics", "word, or list of names", NICsAuto, words(NICsOff, NICsAuto) + "; an adapter, a network device or a PCI address", "RDMA cards that a cluster's agent publishes, a list in the order of their rails. `auto` are those that the host does not need itself ([rdma.md](../rdma.md))"},
		{"nicShares.slots", typeNumber, fmt.Sprint(defaultNICSlots), fmt.Sprintf("1 to %d", mostNICSlots), "how many claims can have a part of a card"},
		{"nicShares.handles", typeNumber, fmt.Sprint(defaultHandles), fmt.Sprintf("1 to %d", mostHandles), "how often a container may have the adapter open, for each slot"},
		{"nicShares.objects", typeNumber, fmt.Sprint(defaultObjects), fmt.Sprintf("1 to %d", mostObjects), "how many objects of the adapter a container may have, such as queues and registered memory, for each slot"},
		{"workers.firstUID", typeNumber, fmt.Sprint(defaultFirstWorker), fmt.Sprintf("%d to %d", leastWorker, mostUsers-1), "the first of the users as whom workers of backend `remote` run, one for each share ([agent-config.md](../agent-config.md#users-of-workers))"},
		{"workers.count", typeNumber, fmt.Sprint(defaultWorkers), fmt.Sprintf("1 to %d", mostWorkers), "how many there are from the first on. With one of both the other is never left out"},
		{"users.NAME", typeTheLimit, "", "a user of the machine, not root", "what the user may have at once"},
		{"groups.NAME", typeTheLimit, "", "a group of the machine", "what each user of the group may have, who has no entry below `users`"},
		{"others", typeTheLimit, "", "", "what each user may have whom no entry names"},
	})
}

// backendFields are those below backends.
func backendFields() []Field {
	return []Field{
		{"backends.BACKEND", "list of GPUs, or fields, or a list of these", string(v1alpha1.BackendSlice), words(formBackends...) + "; an index or a whole UUID", "GPUs whose shares all have this backend. Without `backends` users get shares of the default, and root chooses"},
		{"backends.BACKEND.gpus", "list of GPUs, or " + word(allGPUs), "", "an index or a whole UUID", "the GPUs, or every one that the file does not name"},
		{"backends.BACKEND.replicas", typeNumber, "", fmt.Sprintf("1 to %d; not for `%s`", MaxReplicas, v1alpha1.BackendMIG), "the most shares at once; a share that names no memory gets that part of it"},
		{"backends.timeslice.slice", typeWord, "", words(Slices...), "length of the driver's time slices; left out they stay as they are"},
		{"backends.mps.multiUser", typeYesNo, "false", "", "shares of several users may be on the GPU, which are not isolated from each other then. It needs driver 555 or later"},
		{"backends.FORM", "list of GPUs, or fields, or a list of these", "", words(machineBackends...) + "; a PCI address such as 0000:3b:00.0", "GPUs that a node of a cluster offers to virtual machines: whole, as their virtual functions, or as vGPUs. Programs get no shares of them there"},
		{"backends.FORM.gpus", "list of GPUs, or " + word(allGPUs), "", "a PCI address", "the GPUs, or every one of the machine that the file does not name"},
		{"backends.vgpu.type", typeWord, "", "`nvidia-NUMBER` or the number", "the type of the vGPUs, never left out"},
		{"backends.vf.functions", typeNumber + ", or " + word(allGPUs), "", fmt.Sprintf("1 to %d", mostFunctions), "how many virtual functions the agent enables of each GPU when it starts, where there are none; left out, none ([vm.md](../vm.md#virtual-functions))"},
		{"backends.vgpu.functions", typeNumber + ", or " + word(allGPUs), "", fmt.Sprintf("1 to %d", mostFunctions), "the same for vGPUs"},
		{"backends.vgpu.replicas", typeNumber, "", fmt.Sprintf("1 to %d", MaxReplicas), "the most vGPUs of each GPU at once; left out, as many as there is room for"},
		{"backends.mig.layout", typeWord, LayoutDynamic, words(Layouts...), "whether instances are made for shares, or those given out that are there"},
	}
}

// LimitFields are the fields of limits, each of which limits nothing where it is left out.
func LimitFields() []Field {
	return []Field{
		{"memory", typeMemory, "", "bytes, above a program's context, at most the memory of all GPUs", "the limits of all shares of the user together"},
		{"gpus", typeNumber, "", "from 1, at most the machine's", "the number of GPUs on which the user has shares"},
		{"cores", typeNumber, "", fmt.Sprintf("from 1, at most %d for each GPU", v1alpha1.MaxCores), "the guaranteed cores of all shares together, in percent of one GPU's time: 200 is two GPUs"},
		{"time", typeTime, "", "from " + Duration(leastTime), "the time from the start of a share to its end. Then it ends as with `divvy stop`, and a line on its terminal and `divvy ls` say why"},
		{"weight", typeNumber, "", fmt.Sprintf("1 to %d", v1alpha1.MaxWeight), "the weight of one share"},
		{"swapMemory", typeMemory, "", "bytes, at most the field of that name above", "the host memory of all swap shares and suspended shares together"},
	}
}

func word(text string) string { return "`" + text + "`" }

func words[W ~string](of ...W) string {
	var all []string
	for _, one := range of {
		all = append(all, word(string(one)))
	}
	return strings.Join(all, ", ")
}
