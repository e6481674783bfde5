# What the functions keep between two lines, as it is before the first.

__substrate_= __substrate_f=1 __substrate_s=0 __substrate_u= __substrate_o=$- __substrate_l= __substrate_pre=
__substrate_c=() __substrate_k=0 __substrate_i=0 __substrate_p= __substrate_z=0 __substrate_y= __substrate_g=2
__substrate_v= __substrate_q2= __substrate_j= __substrate_w= __substrate_x= __substrate_n=0 __substrate_aside=0 __substrate_jobs= __substrate_al=0
