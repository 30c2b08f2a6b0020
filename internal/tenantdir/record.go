package tenantdir

import (
	"errors"
	"fmt"
	"os"
)

// mostRecord bounds a record, in bytes: a hundred times what an agent writes, and
// little enough to be read whoever wrote it.
const mostRecord = 1 << 20

// mostRecords bounds all that are read in one place, in bytes: many times what an agent
// writes for as many tenants as it looks at.
const mostRecords = 64 << 20

// keepAny is keep of a record that may be nil.
func (d Dir) keepAny(record []byte) error {
	if record == nil {
		return nil
	}
	return d.keep(record)
}

// keep replaces the record as a whole. Nothing is synced: the directory ends with the
// machine.
func (d Dir) keep(record []byte) error {
	if len(record) > mostRecord {
		return fmt.Errorf("keep a tenant's record: it has %d bytes, and at most %d are read again", len(record), mostRecord)
	}
	temporary := d.Record() + ".new"
	if err := os.RemoveAll(temporary); err != nil {
		return fmt.Errorf("keep a tenant's record: %w", err)
	}
	file, err := os.OpenFile(temporary, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("keep a tenant's record: %w", err)
	}
	_, err = file.Write(record)
	if err = errors.Join(err, file.Close()); err == nil {
		err = os.Rename(temporary, d.Record())
	}
	if err != nil {
		return errors.Join(fmt.Errorf("keep a tenant's record: %w", err), os.Remove(temporary))
	}
	return nil
}
