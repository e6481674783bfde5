# Runs every attack in turn and says what it left: `NAME dead` when it got through, `NAME alive` when
# not, `NAME told` when it was told why as well, `NAME absent` when a tool is missing.
export PATH=/usr/local/bin:/usr/bin:/bin
mkdir -p log
for attack in attacks/*.sh; do
  name=${attack##*/}
  name=${name%.sh}
  absent=
  for tool in $(sed -n 's/^# needs: //p' "$attack"); do
    command -v "$tool" > /dev/null || absent=yes
  done
  if [ -n "$absent" ]; then
    echo "$name absent"
    continue
  fi
  mkdir -p victim
  : > victim/keep
  find victim.git/refs -type f -delete 2> /dev/null
  bash "$attack" > "log/$name" 2>&1 < /dev/null
  if [ ! -e victim/keep ] || [ -n "$(find victim.git/refs -type f 2> /dev/null)" ]; then
    echo "$name dead"
  elif grep -q 'denied by policy' "log/$name"; then
    echo "$name told"
  else
    echo "$name alive"
  fi
done
