package cli

import (
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/cli/columns"
	"github.com/divvy-gpu/divvy/internal/topology"
)

// printPairs writes which adapters make a pair with each GPU, and how many pairs the host offers.
func printPairs(w io.Writer, host *topology.Host) error {
	pairs, words := host.Pairs(), v1alpha1.PairReaches()
	var t columns.Table
	heading := []string{"GPU"}
	for _, word := range words {
		heading = append(heading, strings.ToUpper(string(word)))
	}
	t.Row(heading...)
	for i := range host.GPUs {
		row := []string{"GPU" + strconv.Itoa(host.GPUs[i].Index)}
		for reach := range words {
			var names []string
			for _, nic := range pairs.NICs[i][reach] {
				names = append(names, host.NICs[nic].Name)
			}
			if len(names) == 0 {
				names = []string{"-"}
			}
			row = append(row, strings.Join(names, ","))
		}
		t.Row(row...)
	}
	var page strings.Builder
	t.Print(&page)
	page.WriteByte('\n')
	for reach, word := range words {
		gpus, own := pairs.Most(topology.Reach(reach))
		fmt.Fprintf(&page, "%s: %d of %d GPUs have an adapter, %d at a time one of their own\n", word, gpus, len(host.GPUs), own)
	}
	if _, err := io.WriteString(w, page.String()); err != nil {
		return fmt.Errorf("print pairs: %w", err)
	}
	return nil
}
