package page

import (
	"fmt"
	"os"
)

const (
	// Start is what a new bucket holds, ns (DV_TIME_START_NS of the library).
	Start = 2_000_000
	// MostOwed is the most GPU time that a share can owe, ns: the library forgets what is
	// beyond (DV_TIME_DEBT_NS).
	MostOwed = 3_600_000_000_000
)

// Owe gives a bucket that was never used its first balance, which lacks owed ns of that of
// a new one. From now on that is paid, whether or not a process runs. A bucket that was
// used stays as it is.
func Owe(path string, devices, device int, now, owed uint64) error {
	file, err := open(path, os.O_RDWR, StateMagic, stateSize(devices))
	if err != nil {
		return err
	}
	defer file.Close()
	const refilled = OffsetOfBucketRefilled - OffsetOfBucketBalance
	var words [16]byte
	at := int64(SizeOfState + device*SizeOfGPU + OffsetOfGPUBucket + OffsetOfBucketBalance)
	if _, err := file.ReadAt(words[:], at); err != nil {
		return fmt.Errorf("read what a share owes: %w", err)
	}
	if order.Uint64(words[refilled:]) != 0 {
		return nil
	}
	order.PutUint64(words[:], uint64(Start-int64(min(owed, MostOwed))))
	order.PutUint64(words[refilled:], now)
	if _, err := file.WriteAt(words[:], at); err != nil {
		return fmt.Errorf("write what a share owes: %w", err)
	}
	return nil
}
