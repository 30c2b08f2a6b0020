package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// functionFolder is below a physical function's folder and has what each of its virtual functions has. Beside the kernel's files
// there is firstGroup, the number of the first one's IOMMU group; those of the others follow.
const (
	functionFolder = "model-function"
	firstGroup     = "model-first-group"
)

// divide does what a vendor's driver does for a write that divides a device.
func (m model) divide(path, value string) error {
	parts := strings.Split(path, "/")
	switch {
	case len(parts) == 5 && strings.HasPrefix(path, "bus/mdev/devices/") && parts[4] == "remove":
		return m.removeMediated(parts[3])
	case !strings.HasPrefix(path, "bus/pci/devices/"):
	case len(parts) == 5 && parts[4] == "sriov_drivers_autoprobe":
		return m.set(parts[3], parts[4], value)
	case len(parts) == 5 && parts[4] == "sriov_numvfs":
		return m.enable(parts[3], value)
	case len(parts) == 6 && parts[4] == "nvidia" && parts[5] == "current_vgpu_type":
		return m.give(parts[3], value)
	case len(parts) == 7 && parts[4] == "mdev_supported_types" && parts[6] == "create":
		return m.createMediated(parts[3], parts[5], value)
	}
	return fmt.Errorf("write %s: %w", path, unix.ENOENT)
}

// enable makes virtual functions of a physical one, or takes all away.
func (m model) enable(address, value string) error {
	count, err := strconv.Atoi(value)
	most, _ := strconv.Atoi(m.line(address, "sriov_totalvfs"))
	now := m.line(address, "sriov_numvfs")
	switch {
	case err != nil || count < 0:
		return unix.EINVAL
	case count > most:
		return unix.ERANGE
	case count > 0 && now != "0":
		return unix.EBUSY
	}
	if count == 0 {
		links, err := filepath.Glob(m.device(address, "virtfn*"))
		for _, link := range links {
			err = errors.Join(err, m.vanish(link))
		}
		return errors.Join(err, m.set(address, "sriov_numvfs", value))
	}
	for n := range count {
		if err := m.appear(address, n); err != nil {
			return err
		}
	}
	return m.set(address, "sriov_numvfs", value)
}

// appear makes the nth virtual function.
func (m model) appear(address string, n int) error {
	physical, err := filepath.EvalSymlinks(m.device(address, ""))
	if err != nil {
		return err
	}
	first, err := strconv.Atoi(m.line(address, firstGroup))
	if err != nil {
		return err
	}
	name := fmt.Sprintf("%s.%d", strings.TrimSuffix(address, ".0"), n+1)
	folder := filepath.Join(filepath.Dir(physical), name)
	if err := os.CopyFS(folder, os.DirFS(filepath.Join(physical, functionFolder))); err != nil {
		return err
	}
	below, err := filepath.Rel(m.sys, folder)
	if err != nil {
		return err
	}
	for link, target := range map[string]string{
		filepath.Join(folder, "physfn"):                     "../" + address,
		filepath.Join(folder, "iommu_group"):                fmt.Sprintf("/sys/kernel/iommu_groups/%d", first+n),
		filepath.Join(physical, fmt.Sprintf("virtfn%d", n)): "../" + name,
		m.device(name, ""):                                  "../../../" + below,
	} {
		if err := os.Symlink(target, link); err != nil {
			return err
		}
	}
	if m.line(address, "sriov_drivers_autoprobe") == "0" || m.line(name, "home") == "" {
		return nil
	}
	return m.probe(name)
}

// vanish takes the virtual function away to which a link of its physical one leads.
func (m model) vanish(link string) error {
	target, err := os.Readlink(link)
	if err != nil {
		return err
	}
	return errors.Join(os.RemoveAll(filepath.Join(filepath.Dir(link), target)), os.Remove(m.device(filepath.Base(target), "")), os.Remove(link))
}

// give gives a virtual function a type that it can have, or takes it away.
func (m model) give(address, value string) error {
	now := m.line(address, "nvidia/current_vgpu_type")
	switch {
	case value == now:
		return nil
	case value != "0" && now != "0":
		return unix.EBUSY
	case value != "0" && !strings.Contains(m.line(address, "nvidia/creatable_vgpu_types"), value):
		return unix.EINVAL
	}
	return m.set(address, "nvidia/current_vgpu_type", value)
}

// createMediated makes a mediated device of a type. It is in the IOMMU group that the type's file names.
func (m model) createMediated(address, kind, uuid string) error {
	folder := "mdev_supported_types/" + kind
	left, err := strconv.Atoi(m.line(address, folder+"/available_instances"))
	if err != nil || left == 0 {
		return unix.ENOSPC
	}
	at := filepath.Join(m.sys, "bus/mdev/devices", uuid)
	if _, err := os.Lstat(at); !errors.Is(err, fs.ErrNotExist) {
		return unix.EEXIST
	}
	err = errors.Join(os.MkdirAll(at, 0o755), os.MkdirAll(m.device(address, folder+"/devices"), 0o755))
	for link, target := range map[string]string{
		filepath.Join(at, "mdev_type"):             m.device(address, folder),
		filepath.Join(at, "iommu_group"):           "/sys/kernel/iommu_groups/" + m.line(address, folder+"/"+firstGroup),
		m.device(address, folder+"/devices/"+uuid): at,
	} {
		err = errors.Join(err, os.Symlink(target, link))
	}
	return errors.Join(err, m.set(address, folder+"/available_instances", strconv.Itoa(left-1)))
}

func (m model) removeMediated(uuid string) error {
	at := filepath.Join(m.sys, "bus/mdev/devices", uuid)
	kind, err := os.Readlink(filepath.Join(at, "mdev_type"))
	if err != nil {
		return unix.ENODEV
	}
	text, err := os.ReadFile(filepath.Join(kind, "available_instances"))
	if err != nil {
		return err
	}
	left, err := strconv.Atoi(strings.TrimSpace(string(text)))
	return errors.Join(err, os.Remove(filepath.Join(kind, "devices", uuid)), os.RemoveAll(at),
		os.WriteFile(filepath.Join(kind, "available_instances"), fmt.Appendln(nil, left+1), 0o600))
}
