package integration
import ("testing";"os")
func TestTmp(t *testing.T){
 m := startMachine(t, os.Getenv("MODEL"))
 share := m.tenant(t, 6<<30, 0)
 for _, d := range []string{m.instance.Dir, share} {
 cmd := command(t, d, python(t), "testdata/look.py"); out, err := cmd.CombinedOutput(); t.Logf("%s %v", out, err)
 cmd = command(t, d, python(t), "-m","nvitop","-1"); cmd.Env=append(cmd.Env,"COLUMNS=120","LINES=100","TERM=dumb","DIVVY_LOG=stderr"); out, err = cmd.CombinedOutput(); t.Logf("%s %v", out, err)
 }
}
