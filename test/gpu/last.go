package main

import "time"

func lastCases() []testCase {
	return []testCase{{name: "left", asks: "Is everything given back in the end?", needs: needs{share: true},
		expected: "no share of this test is left, and the GPU has as much free as before",
		means:    "Divvy or the driver keeps something of programs that have ended", limit: 30 * time.Second, run: left}}
}

func left(t *trial) error {
	var now gpu
	var shares []tenantNow
	ok, err := t.until(15*time.Second, func() (done bool, err error) {
		if shares, err = t.shares(); err != nil {
			return false, err
		}
		now, err = t.now()
		return len(shares) == 0 && now.Used <= t.gpu.Used+64*mib, err
	})
	switch {
	case err != nil || ok:
		return err
	case len(shares) > 0:
		return differ("%d shares of this test are listed, the first as %s", len(shares), shares[0].Name)
	case len(now.Processes) > len(t.gpu.Processes):
		return skip("others use more of the GPU than before")
	}
	return differ("%s more are in use than at the beginning", bytesText(now.Used-t.gpu.Used))
}
