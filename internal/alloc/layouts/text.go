package layouts

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// names of the counters in text.
var counterNames = [counters]string{"compute", "copy", "decoders", "encoders", "jpeg", "ofa"}

// mostText bounds what [Parse] reads, in bytes.
const mostText = 16 << 10

// Parse reads profiles as text, one after the other with ";" or line breaks between them. Each has a name, the memory
// slices at which an instance may begin, its size and, where known, what it takes of the counters:
//
//	1g.10gb+me 0-6:1 compute=1 copy=1 decoders=1 jpeg=1 ofa=1
//
// Starts are separated by commas, and two with - between them stand for all from one to the other. Lines that begin with
// # are left out. The errors wrap [ErrModel].
func Parse(text string) ([]Profile, error) {
	if len(text) > mostText {
		return nil, fmt.Errorf("%w: %d bytes: give at most %d", ErrModel, len(text), mostText)
	}
	var profiles []Profile
	for line := range strings.SplitSeq(text, "\n") {
		if strings.HasPrefix(strings.TrimSpace(line), "#") {
			continue
		}
		for one := range strings.SplitSeq(line, ";") {
			fields := strings.Fields(one)
			if len(fields) == 0 {
				continue
			}
			p, err := parseProfile(fields)
			if err != nil {
				return nil, fmt.Errorf("%w: profile %q: %w", ErrModel, strings.TrimSpace(one), err)
			}
			profiles = append(profiles, p)
		}
	}
	return profiles, nil
}

func parseProfile(fields []string) (Profile, error) {
	p := Profile{Name: strings.Clone(fields[0])}
	if len(fields) < 2 {
		return p, fmt.Errorf("give a name and its placements, such as 1g.10gb 0-6:1")
	}
	starts, size, ok := strings.Cut(fields[1], ":")
	if !ok {
		return p, fmt.Errorf("%q has no size: write starts:size, such as 0-6:1", fields[1])
	}
	var err error
	if p.Size, err = number(size, 1, MaxSlices); err != nil {
		return p, err
	}
	for part := range strings.SplitSeq(starts, ",") {
		from, to, several := strings.Cut(part, "-")
		low, err := number(from, 0, MaxSlices-1)
		if err != nil {
			return p, err
		}
		high := low
		if several {
			if high, err = number(to, low, MaxSlices-1); err != nil {
				return p, err
			}
		}
		for at := low; at <= high; at++ {
			if slices.Contains(p.Starts, at) {
				return p, fmt.Errorf("start %d stands twice", at)
			}
			p.Starts = append(p.Starts, at)
		}
	}
	return p, p.parseTakes(fields[2:])
}

func (p *Profile) parseTakes(fields []string) error {
	given := map[string]bool{}
	for _, field := range fields {
		name, text, _ := strings.Cut(field, "=")
		c := slices.Index(counterNames[:], name)
		if c < 0 || given[name] {
			return fmt.Errorf("%q: write each of %s once, with = and a number", field, strings.Join(counterNames[:], ", "))
		}
		given[name] = true
		n, err := number(text, 0, 255)
		if err != nil {
			return err
		}
		p.Takes[c] = uint8(n)
	}
	return nil
}

func number(text string, least, most int) (int, error) {
	n, err := strconv.Atoi(text)
	if err != nil || n < least || n > most {
		return 0, fmt.Errorf("%q is not a whole number from %d to %d", text, least, most)
	}
	return n, nil
}
