package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

func orderCases() []testCase {
	return []testCase{
		{name: "legacy_stream", asks: "Does work in one stream wait for another where it would not natively?", needs: needs{share: true, quiet: true},
			expected: "a share under a cap orders streams as the driver does: nothing of Divvy's is recorded into the legacy stream",
			means:    "measuring a share's time makes its streams wait for each other; programs are slower than their share allows",
			limit:    time.Minute, run: order},
		{name: "ended_streams", asks: "What does the driver say to the handle of a stream that has ended?", needs: needs{share: true},
			expected: "CUDA_ERROR_INVALID_HANDLE, CUDA_ERROR_CONTEXT_IS_DESTROYED or a crash, and the same in a share; that is not documented",
			means:    "a share answers otherwise than the driver; where the driver crashes, Divvy may never pass such a handle later",
			limit:    2 * time.Minute, run: ended},
		{name: "exports", asks: "What tells the descriptors of exported memory apart?", needs: needs{share: true},
			expected: "all are openings of one device node, so the inode tells nothing, and a lock can be had and is shown in fdinfo",
			means:    "if inodes tell memory apart, no marks are needed; if locks cannot be had, exported memory is charged until its share ends",
			limit:    time.Minute, run: exports},
	}
}

// question is what gpuprobe order says of one.
type question struct {
	Waited bool
	MS     float64
	Result string
}

func order(t *trial) error {
	native, err := t.questions(t.natively())
	if err != nil {
		return err
	}
	// A cap that measures and never holds back: a launch that waits for its share's time would look like one that waits
	// for a stream.
	share, err := t.questions(t.capped(100))
	if err != nil {
		return err
	}
	var other []string
	for _, name := range slices.Sorted(maps.Keys(native)) {
		n, s := native[name], share[name]
		t.compare(name, waited(n), waited(s))
		if n.Waited != s.Waited {
			other = append(other, name)
		}
	}
	if len(other) > 0 {
		return differ("%v", other)
	}
	return nil
}

func waited(q question) string {
	if q.Waited {
		return fmt.Sprintf("waits (%.1f ms)", q.MS)
	}
	return fmt.Sprintf("does not wait (%.1f ms)", q.MS)
}

func (t *trial) questions(at place) (map[string]question, error) {
	var fields map[string]json.RawMessage
	if err := t.ask(&fields, at, t.gpuprobe(), "order"); err != nil {
		return nil, err
	}
	asked := map[string]question{}
	for name, text := range fields {
		var q question
		if text[0] == '{' {
			if err := json.Unmarshal(text, &q); err != nil {
				return nil, fmt.Errorf("read what was asked about streams: %w", err)
			}
			asked[name] = q
		}
	}
	if len(asked) == 0 {
		return nil, fmt.Errorf("ask about streams: %s", fields["result"])
	}
	return asked, nil
}

// both asks gpuprobe natively and in a share, and compares all answers.
func (t *trial) both(command string) (native, share map[string]any, err error) {
	if err := t.ask(&native, t.natively(), t.gpuprobe(), command); err != nil {
		return nil, nil, err
	}
	if err := t.ask(&share, t.share(flags{memory: t.size() / 2}), t.gpuprobe(), command); err != nil {
		return nil, nil, err
	}
	for _, name := range slices.Sorted(maps.Keys(native)) {
		if name != "command" && name != "result" {
			t.compare(name, fmt.Sprint(native[name]), fmt.Sprint(share[name]))
		}
	}
	return native, share, nil
}

// unlike names the answers that differ.
func unlike(native, share map[string]any) (names []string) {
	for _, name := range slices.Sorted(maps.Keys(native)) {
		if fmt.Sprint(native[name]) != fmt.Sprint(share[name]) {
			names = append(names, name)
		}
	}
	return names
}

func ended(t *trial) error {
	native, share, err := t.both("ended")
	if err != nil {
		return err
	}
	for _, answers := range []map[string]any{native, share} {
		for name, answer := range answers {
			if text := fmt.Sprint(answer); strings.HasPrefix(text, "start: ") || text == "not asked" {
				return fmt.Errorf("ask %s: %s", name, text)
			}
		}
	}
	// Whether a number is used again soon depends on what else was made and ended.
	delete(native, "number_used_again")
	if names := unlike(native, share); len(names) > 0 {
		return differ("%v", names)
	}
	return nil
}

func exports(t *trial) error {
	native, share, err := t.both("exports")
	if err != nil {
		return err
	}
	if names := unlike(native, share); len(names) > 0 {
		return differ("a share answers otherwise: %v", names)
	}
	switch {
	case native["other_memory_same_inode"] != true:
		return differ("other memory has another inode")
	case native["can_be_locked"] != true || native["lock_is_shown"] != true:
		return differ("a lock cannot be had or is not shown")
	}
	return nil
}
