package cli

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/agent/control"
)

// shareFlags are the flags that describe a share, for run and set.
type shareFlags struct {
	memory     v1alpha1.Memory
	cores      cores
	maxCores   cores
	policy     string
	weight     positive
	class      string
	overcommit bool
}

// add defines the flags. leftOut says what a missing flag means; without an entry
// the share stays as it is.
func (f *shareFlags) add(flags *pflag.FlagSet, leftOut map[string]string) {
	text := func(name, usage string) string {
		if meaning := leftOut[name]; meaning != "" {
			usage += " (default: " + meaning + ")"
		}
		return usage
	}
	flags.Var(&memoryFlag{&f.memory}, "memory", text("memory", "memory of each GPU, such as 4Gi, 800M or 50%"))
	flags.Var(&f.cores, "cores", text("cores", "guaranteed percentage of each GPU's time, 1 to 100; with backends mps and mig a part of its SMs"))
	flags.Var(&f.maxCores, "max-cores", text("max-cores", "percentage up to which policy burst takes idle time, 1 to 100"))
	flags.Var(&word{"POLICY", &f.policy}, "policy", text("policy", "fixed, weighted or burst"))
	flags.Var(&f.weight, "weight", text("weight", fmt.Sprintf("part of the time among weighted shares, 1 to %d", v1alpha1.MaxWeight)))
	flags.Var(&word{"CLASS", &f.class}, "class", text("class", "online, or offline: yields to online shares at once and has nothing guaranteed"))
	flags.BoolVar(&f.overcommit, "overcommit", false, "allow the shares of a GPU to add up to more memory or guaranteed time than it has, if you may")
}

// word is a text flag; kind stands for its value in help.
type word struct {
	kind string
	text *string
}

// Set implements pflag.Value. It refuses an empty text, which usually comes from
// an unset shell variable: as --gpu it would mean any GPU.
func (w *word) Set(text string) error {
	if text == "" {
		return fmt.Errorf("give a value, or leave the flag out")
	}
	*w.text = text
	return nil
}

// Type implements pflag.Value.
func (w *word) Type() string { return w.kind }

func (w *word) String() string {
	if w.text == nil {
		return ""
	}
	return *w.text
}

// memoryFlag reads an amount of memory when the flag is parsed, so that the
// error names the flag.
type memoryFlag struct{ memory *v1alpha1.Memory }

func (f *memoryFlag) Set(text string) error {
	parsed, err := v1alpha1.ParseMemory(text)
	meant := meantMemory(text)
	switch {
	case err != nil && meant != "":
		return fmt.Errorf("%w: did you mean %s?", err, meant)
	case err != nil:
		return err
	case meant != "" && parsed.InBytes() < v1alpha1.BlockBytes:
		return fmt.Errorf("%s is a number of bytes, and no GPU gives so few: did you mean %s?", text, meant)
	}
	*f.memory = parsed
	return nil
}

// suffixes are what people write for those of memory.
var suffixes = map[string]string{
	"": "Mi", "k": "Ki", "kb": "Ki", "kib": "Ki", "m": "Mi", "mb": "M", "mib": "Mi", "g": "Gi", "gb": "G", "gib": "Gi", "gi": "Gi", "mi": "Mi", "ki": "Ki", "t": "Ti", "tb": "T", "tib": "Ti", "ti": "Ti",
}

// meantMemory is the amount that may be meant by one with a suffix of another system or none, "" if none may.
func meantMemory(text string) string {
	text = strings.TrimSpace(text)
	number := strings.TrimRight(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ ")
	suffix, known := suffixes[strings.ToLower(strings.TrimSpace(text[len(number):]))]
	if !known {
		return ""
	}
	meant := number + suffix
	if _, err := v1alpha1.ParseMemory(meant); err != nil || meant == text {
		return ""
	}
	return meant
}

func (f *memoryFlag) Type() string { return "AMOUNT" }

func (f *memoryFlag) String() string {
	if f.memory == nil || f.memory.IsZero() {
		return ""
	}
	return f.memory.String()
}

// cores is a percentage of GPU time. 0 means that the flag was left out.
type cores int

// Set implements pflag.Value.
func (c *cores) Set(text string) error {
	n, err := v1alpha1.ParseCores(text)
	if err != nil {
		return err
	}
	*c = cores(n)
	return nil
}

// Type implements pflag.Value.
func (c *cores) Type() string { return "PERCENT" }

func (c *cores) String() string { return leftOut(int(*c)) }

// positive is a number from 1. 0 means that the flag was left out.
type positive int

// Set implements pflag.Value.
func (p *positive) Set(text string) error {
	n, err := strconv.Atoi(strings.TrimSpace(text))
	if err != nil || n < 1 {
		return fmt.Errorf("give a whole number, 1 or more")
	}
	*p = positive(n)
	return nil
}

// Type implements pflag.Value.
func (p *positive) Type() string { return "N" }

func (p *positive) String() string { return leftOut(int(*p)) }

func leftOut(n int) string {
	if n == 0 {
		return ""
	}
	return strconv.Itoa(n)
}

// layerFlag is a layer or "auto", which is the zero value.
type layerFlag struct{ layer control.Layer }

func (f *layerFlag) Set(text string) error {
	switch layer := control.Layer(text); layer {
	case "auto":
		f.layer = ""
	case control.LayerNamespace, control.LayerEnv:
		f.layer = layer
	default:
		return fmt.Errorf("use auto, namespace or env")
	}
	return nil
}

func (f *layerFlag) Type() string { return "LAYER" }

func (f *layerFlag) String() string {
	if f.layer == "" {
		return "auto"
	}
	return string(f.layer)
}

// swapFlags are the flags by which the memory of a share may leave the GPU.
type swapFlags struct {
	swap         bool
	kept         v1alpha1.Memory
	suspendAfter time.Duration
}

// add defines the flags.
func (f *swapFlags) add(flags *pflag.FlagSet) {
	flags.BoolVar(&f.swap, "swap", false, "let the share's memory leave the GPU for host memory, and come back, in turns with that of other such shares; --memory is what it has in all")
	flags.Var(&memoryFlag{&f.kept}, "kept", "with --swap the part of --memory that never leaves the GPU, for contexts, code, pools, arrays and graphs (default: a tenth, at least 1Gi, at most half)")
	flags.DurationVar(&f.suspendAfter, "suspend-after", 0, "take the share's programs off the GPU when they have not used it for this `TIME`, such as 10m, and back at their next call (default: never)")
}

// ask asks for what the flags say.
func (f *swapFlags) ask(c *v1alpha1.ShareConfig) {
	c.Swap, c.Kept, c.SuspendAfter = f.swap, f.kept, v1alpha1.Duration(f.suspendAfter)
}
