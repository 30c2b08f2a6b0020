package visible

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// entriesMost bounds a list: more GPUs than any machine has.
const entriesMost = 256

// none are values that show no GPU: Slurm's for a job without GPUs, and those that
// container runtimes and people write.
var none = []string{"", "nodevfiles", "none", "void"}

// parse reads the value of CUDA_VISIBLE_DEVICES: indexes, or UUIDs and beginnings of
// them. As CUDA's documentation says, an index of -1 ends the list. CUDA also ends it,
// without a word, at anything else that it does not understand; a caller of Divvy would
// then get fewer GPUs than the list has, so here that is an error.
func parse(value string) ([]string, error) {
	var list []string
	entries := strings.Split(value, ",")
	if len(entries) > entriesMost {
		return nil, refuse("%s has %d entries: name at most %d GPUs", Variable, len(entries), entriesMost)
	}
	for i, entry := range entries {
		entry = strings.TrimSpace(entry)
		lower := strings.ToLower(entry)
		switch {
		case entry == "-1", i == 0 && slices.Contains(none, lower) && len(entries) == 1:
			return list, nil
		case entry == "" && i == len(entries)-1:
			return list, nil
		case strings.HasPrefix(lower, "mig-"):
			return nil, refuse("%s=%s names a MIG instance, and Divvy chooses or makes the instance itself: name GPUs in it, and ask for an instance with --profile", Variable, value)
		case isIndex(entry):
			n, _ := strconv.Atoi(entry)
			list = append(list, strconv.Itoa(n)) // without leading zeros
		case isUUID(lower):
			list = append(list, entry)
		default:
			return nil, refuse("%s=%s: %q is neither an index nor a UUID, and CUDA would not see what stands behind it: correct or unset it", Variable, value, entry)
		}
	}
	return list, nil
}

// isIndex reports whether an entry is a number that is small enough for one.
func isIndex(entry string) bool {
	return entry != "" && len(entry) <= 4 && strings.Trim(entry, "0123456789") == ""
}

// isUUID reports whether an entry in lower case is a GPU's UUID or the beginning of one.
func isUUID(lower string) bool {
	digits, ok := strings.CutPrefix(lower, "gpu-")
	return ok && digits != "" && len(digits) <= 36 && strings.Trim(digits, "0123456789abcdef-") == ""
}

// variable returns the UUIDs of the GPUs that a value of CUDA_VISIBLE_DEVICES names.
func (s Sight) variable(value string) ([]string, error) {
	list, err := parse(value)
	if err != nil {
		return nil, err
	}
	var uuids []string
	for i, entry := range list {
		uuid, err := s.entry(value, entry)
		if err != nil {
			return nil, err
		}
		if at := slices.Index(uuids, uuid); at >= 0 {
			if list[at] == entry {
				return nil, refuse("%s=%s names GPU %s twice", Variable, value, entry)
			}
			return nil, refuse("%s=%s names one GPU twice, as %s and %s", Variable, value, list[at], list[i])
		}
		uuids = append(uuids, uuid)
	}
	return uuids, nil
}

// entry returns the UUID of the GPU that one entry of the variable names.
func (s Sight) entry(value, entry string) (string, error) {
	index := isIndex(entry)
	switch {
	case index && s.Blind != nil:
		return "", refuse("%s=%s counts GPUs as CUDA shows them to this process, and CUDA could not be asked: %w: give UUIDs; %s", Variable, value, s.Blind, shows)
	case index:
		if n, _ := strconv.Atoi(entry); n < len(s.Shown) {
			return s.Shown[n], nil
		}
		return "", fmt.Errorf("%w: %s=%s: %s", ErrUnknown, Variable, value, s.tooFar(entry))
	case s.Hidden && s.Blind == nil:
		uuid, err := resolve(numbered(s.Shown), entry)
		if err != nil {
			return "", fmt.Errorf("%w: %s=%s: CUDA does not show %s to this process: it shows %s", ErrUnknown, Variable, value, entry, s.list(s.Shown))
		}
		return uuid, nil
	}
	uuid, err := resolve(s.Served, entry)
	if err != nil {
		return "", fmt.Errorf("%s=%s: %w", Variable, value, err)
	}
	return uuid, nil
}

// tooFar says that an index is beyond what CUDA shows.
func (s Sight) tooFar(entry string) string {
	switch len(s.Shown) {
	case 0:
		return "CUDA shows this process no GPU"
	case 1:
		return fmt.Sprintf("CUDA shows this process one GPU, number 0, and no GPU %s", entry)
	}
	return fmt.Sprintf("CUDA shows this process GPUs 0 to %d and no GPU %s", len(s.Shown)-1, entry)
}

func numbered(uuids []string) []GPU {
	gpus := make([]GPU, len(uuids))
	for i, uuid := range uuids {
		gpus[i] = GPU{Index: i, UUID: uuid}
	}
	return gpus
}
