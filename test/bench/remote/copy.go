package main

import (
	"errors"
	"fmt"

	"github.com/divvy-gpu/divvy/test/bench/measurement"
	"github.com/divvy-gpu/divvy/test/bench/simulated"
)

const (
	copyID   = "remote.copy_percent"
	copySize = 256 << 20
)

// copies compares copies of much memory each way.
func (b *bench) copies() ([]measurement.Row, error) {
	var rows []measurement.Row
	for _, c := range []struct {
		kind string
		goal float64
	}{{"pinned", 90}, {"pageable", 45}} {
		pairs, err := b.pairs(remote, 31, ways, "bulk", "--kind", c.kind, "--bytes", fmt.Sprint(copySize), "--count", "3")
		if err != nil {
			return nil, err
		}
		for way, name := range []string{"to the GPU", "from the GPU"} {
			percent := each(pairs[way], func(p pair) float64 { return 100 * p.local / p.remote })
			r := row(copyID, fmt.Sprintf("local, %s, %s", c.kind, name), "%", c.goal, measurement.Higher, percent)
			own, away := medians(pairs[way])
			r.Note = fmt.Sprintf("256 MiB, of each run the median of 3. In a local share they take %.1f ms, remote %.1f ms.", own/1e6, away/1e6)
			rows = append(rows, r)
		}
	}
	encrypted, err := b.encryptedCopies()
	return append(rows, encrypted...), err
}

func ways(lines []simulated.Line) []float64 {
	return []float64{float64(lines[0].To), float64(lines[0].From)}
}

// encryptedCopies compares copies to the other host with what passes through two processes that encrypt and do nothing else.
func (b *bench) encryptedCopies() (rows []measurement.Row, err error) {
	h, err := b.serve()
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, h.close()) }()
	bare, err := h.relay()
	if err != nil {
		return nil, err
	}
	defer bare.close()
	for _, kind := range []string{"pinned", "pageable"} {
		var percent, plain, away [2][]float64
		for range b.times(15) {
			own, err := bare.copies()
			if err != nil {
				return nil, err
			}
			lines, err := b.gpubench(tls(near), "bulk", "--kind", kind, "--bytes", fmt.Sprint(copySize), "--count", "3")
			if err != nil {
				return nil, err
			}
			for way, took := range ways(lines) {
				percent[way] = append(percent[way], 100*own[way]/took)
				plain[way], away[way] = append(plain[way], own[way]), append(away[way], took)
			}
		}
		for way, name := range []string{"to the GPU", "from the GPU"} {
			r := row(copyID, fmt.Sprintf("TLS, %s, %s", kind, name), "%", 80, measurement.Higher, percent[way])
			r.Note = fmt.Sprintf("256 MiB, of each run the median of 3. Two processes that encrypt, decrypt and do nothing else take %.1f ms, the copies %.1f ms.",
				middle(plain[way])/1e6, middle(away[way])/1e6)
			rows = append(rows, r)
		}
	}
	return rows, nil
}
