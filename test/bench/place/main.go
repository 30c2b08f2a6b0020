// Place measures how well and how quickly the allocator chooses: the published
// procedure on the openb traces, churn, and decisions per second. It merges its
// rows into docs/measurements/place.json.
package main

import (
	"flag"
	"fmt"
	"os"
)

func main() {
	data := flag.String("data", "testdata/openb", "`FOLDER` with the openb traces")
	out := flag.String("out", "docs/measurements/place.json", "`FILE` to merge the figures into")
	seeds := flag.Int("seeds", 10, "seeds for each figure, from 42 on")
	only := flag.String("only", "", "measure only the figures whose ids begin so, such as place.default")
	mixes := flag.String("mixes", "all", "`WHICH` mixes place.unseen measures: all, tuning, or held, which whoever tunes a policy leaves alone")
	flag.Parse()
	b := &bench{data: *data, seeds: *seeds, mixes: *mixes}
	if err := b.run(*out, *only); err != nil {
		fmt.Fprintln(os.Stderr, "place:", err)
		os.Exit(1)
	}
}
