package alarms

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"math/big"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tideline/e2e/worldtest"
	"tideline/storage/storagetest"
)

// The certificate of a server expires soon. It is renewed as the runbook says.
func TestCertificateEnds(t *testing.T) {
	t.Parallel()
	needPrometheus(t)
	dir := t.TempDir()
	certify := func(life time.Duration) {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		require.NoError(t, err)
		template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(life)}
		der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
		require.NoError(t, err)
		private, err := x509.MarshalPKCS8PrivateKey(key)
		require.NoError(t, err)
		for name, block := range map[string]*pem.Block{"cert": {Type: "CERTIFICATE", Bytes: der}, "key": {Type: "PRIVATE KEY", Bytes: private}} {
			require.NoError(t, os.WriteFile(filepath.Join(dir, name), pem.EncodeToMemory(block), 0o600))
		}
	}
	certify(90 * 24 * time.Hour)
	p := worldtest.NewProcess(t, binary, []string{
		"TIDELINE_DATA_DIR=" + t.TempDir(), "TIDELINE_TLS_CERT=" + filepath.Join(dir, "cert"), "TIDELINE_TLS_KEY=" + filepath.Join(dir, "key"),
	}, "--admin-addr", "serve", "--addr=127.0.0.1:0")
	restart := func() { p.Kill(); require.NoError(t, p.Start()) }
	watch(t, p.URL).try(t, fault{
		what:   "a certificate for a day",
		alerts: []string{"TidelineCertificateEnds"},
		cause:  func() { certify(24 * time.Hour); restart() },
		cure:   func() { certify(90 * 24 * time.Hour); restart() },
	})
}

// A process nearly runs out of file descriptors. Then it crashes repeatedly. Then it is down.
func TestProcess(t *testing.T) {
	t.Parallel()
	needPrometheus(t)
	p := worldtest.NewProcess(t, binary, []string{"TIDELINE_DATA_DIR=" + t.TempDir()}, "--addr", "serve")
	watcher := watch(t, p.URL)
	files := func() int {
		open, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", p.Pid()))
		require.NoError(t, err)
		return len(open)
	}
	allow := func(most string) {
		out, err := exec.Command("prlimit", "--pid", strconv.Itoa(p.Pid()), "--nofile="+most+":").CombinedOutput()
		require.NoError(t, err, string(out))
	}
	if _, err := exec.LookPath("prlimit"); err == nil {
		watcher.try(t, fault{
			what:   "prlimit on a running process",
			alerts: []string{"TidelineFilesNearlyOut"},
			cause:  func() { allow(strconv.Itoa(files() + 4)) },
			cure:   func() { allow("4096") },
		})
	} else {
		t.Log("TidelineFilesNearlyOut IS NOT TRIED: there is no prlimit")
	}
	watcher.try(t, fault{
		what:   "a process that crashes again and again",
		alerts: []string{"TidelineRestarts"},
		cause:  func() {},
		repeat: func() {
			last := watcher.value(t, "process_start_time_seconds")
			p.Kill()
			require.NoError(t, p.Start())
			await(t, nil, "Prometheus knows of the start", func() bool {
				now := watcher.value(t, "process_start_time_seconds")
				return now != last && now != "0"
			})
		},
		cure: func() {},
	})
	watcher.try(t, fault{
		what:   "a process that is away",
		alerts: []string{"TidelineDown"},
		cause:  p.Kill,
		cure:   func() { require.NoError(t, p.Start()) },
	})
}

// The disk of the SQLite file fills up.
func TestDiskNearlyFull(t *testing.T) {
	t.Parallel()
	needPrometheus(t)
	dir := smallDisk(t)
	p := worldtest.NewProcess(t, binary, []string{"TIDELINE_DATA_DIR=" + dir}, "--addr", "serve")
	var data struct{ SignUp struct{ Token string } }
	require.NoError(t, p.Call(t.Context(), "", `mutation { signUp(input: {handle: "ann", password: "wait for no one"}) { token } }`, nil, &data))
	filler := filepath.Join(dir, "filler")
	watch(t, p.URL).try(t, fault{
		what:   "a disk fills up",
		alerts: []string{"TidelineDiskNearlyFull"},
		cause: func() {
			file, err := os.Create(filler)
			require.NoError(t, err)
			defer file.Close()
			for chunk := make([]byte, 64<<10); ; { // until the disk is full
				if _, err := file.Write(chunk); err != nil {
					break
				}
			}
			await(t, nil, "a post is refused", func() bool { return post(t, p, data.SignUp.Token) != nil })
		},
		cure: func() { require.NoError(t, os.Remove(filler)) },
	})
	require.NoError(t, post(t, p, data.SignUp.Token), "it goes on without a restart")
}

// smallDisk mounts a file system of 32 MiB and returns its directory. It skips the test if
// mounting is not allowed.
func smallDisk(t *testing.T) string {
	t.Helper()
	dir := storagetest.ProgramDir(t, "disk")
	if out, err := exec.Command("mount", "-t", "tmpfs", "-o", "size=32m", "tmpfs", dir).CombinedOutput(); err != nil {
		t.Skipf("SKIPPED, TidelineDiskNearlyFull IS NOT TRIED: no file system may be mounted here: %v %s", err, out)
	}
	t.Cleanup(func() {
		out, err := exec.Command("umount", "--lazy", dir).CombinedOutput()
		require.NoError(t, err, string(out))
	})
	return dir
}
